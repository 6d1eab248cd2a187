"""What operators read (nodes, leaders, schedules, events), and the few things they switch."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from leasework import errors
from leasework.config import (
    DEATH_SECONDS,
    PACE_JOBS,
    STOPPED_RUNS,
    TROUBLE_SECONDS,
    Settings,
    check_text,
)
from leasework.env import Env
from leasework.model.deadline import STATES
from leasework.model.history import Counts, added, percentile
from leasework.store.operation import Now
from leasework.store.reports import Reports
from leasework.store.rows import (
    BlockerView,
    DeadlineView,
    EventView,
    LeaderView,
    LockView,
    NodeView,
    StoredSchedule,
    TaskFailures,
    TermView,
    TickView,
    UnhandledBreach,
)
from leasework.telemetry import CATALOGUE
from leasework.tuning import Tuning
from leasework.watch.checks import database_problems, problems
from leasework.watch.facts import Facts, Pace
from leasework.watch.finding import Finding

LATELY = (
    "service_failed",
    "lock_lost",
    "tick_missed",
    "schedules_synced",
    "deadline_breached",
    "clock_jumped",
    "login_refused",
    "job_unreadable",
)
"""Events that the checks judge."""


class Inspector:
    """What operators read. Rows have the columns of the views of the same names, as attributes."""

    def __init__(self, reports: Reports, env: Env, settings: Settings) -> None:
        self._reports = reports
        self._env = env
        self._settings = settings

    async def nodes(self, limit: int = 1000) -> list[NodeView]:
        """Every node, the oldest first. Raises ConfigError for a wrong limit."""
        return await self._reports.nodes(_checked(limit))

    async def leaders(self, limit: int = 1000) -> list[LeaderView]:
        """Every election and its leader. Raises ConfigError."""
        return await self._reports.leaders(_checked(limit))

    async def terms(self, name: str | None = None, limit: int = 50) -> list[TermView]:
        """The newest terms of one election, or of all. Raises ConfigError."""
        return await self._reports.terms(name, _checked(limit))

    async def locks(self, limit: int = 1000) -> list[LockView]:
        """Leases and advisory locks that are held or waited for. Raises ConfigError."""
        return await self._reports.locks(_checked(limit))

    async def schedules(
        self, app: str | None = None, prefix: str = "", limit: int = 1000
    ) -> list[StoredSchedule]:
        """Schedules by application and name, without their arguments. ``prefix``: how their names
        begin. Raises ConfigError."""
        return await self._reports.schedules(_checked(limit), app=app, prefix=prefix, longest=0)

    async def ticks(self, schedule: str | None = None, limit: int = 50) -> list[TickView]:
        """The newest entries of the ledger: what became of each due moment. Raises ConfigError."""
        return await self._reports.ticks(schedule, _checked(limit))

    async def deadlines(
        self, state: str | None = None, name: str | None = None, limit: int = 50
    ) -> list[DeadlineView]:
        """Open deadlines, the next one due first; then decided ones, the newest first. Raises
        ConfigError."""
        if state is not None and state not in STATES:
            raise errors.ConfigError("no such state", got=state, do=errors.suggest(state, STATES))
        return await self._reports.deadlines(state, name, _checked(limit))

    async def unhandled_breaches(self, limit: int = 50) -> list[UnhandledBreach]:
        """Recent breaches whose callback waits for a task that no live node knows, or was discarded
        or quarantined. Raises ConfigError."""
        now = self._env.due_now()
        return await self._reports.unhandled_breaches(Tuning.unhandled_days, _checked(limit), now)

    async def events(
        self, kind: str | None = None, after: int | None = None, limit: int = 50
    ) -> list[EventView]:
        """The newest events first; with ``after``, only those with a larger id. Raises ConfigError
        for a kind that is not in the catalogue."""
        check_kind(kind)
        return await self._reports.events(kind, after, _checked(limit))

    async def facts(self) -> Facts:
        """The facts behind ``status``, from a handful of short statements."""
        blockers = await self._reports.blockers(self._env.due_now())
        locked = any(row.table and (row.open_seconds or 0.0) > 1.0 for row in blockers)
        try:
            async with asyncio.timeout(Tuning.locked_seconds if locked else None):
                return await self._facts(blockers)
        except TimeoutError:
            raise errors.Conflict("a table is locked, so it cannot be read") from None

    async def _facts(self, blockers: list[BlockerView]) -> Facts:
        reports, now = self._reports, self._env.due_now()
        await reports.check_schema()
        clock = await reports.database_now(now)
        nodes = await reports.nodes(Tuning.read_rows)
        return Facts(
            now=clock,
            summary=await reports.summary(now),
            queues=await reports.queues(now),
            pace=await self._pace(nodes, clock, now),
            blockers=blockers,
            connections=await reports.connections(),
            locks=await reports.lock_counts(now),
            silences=await reports.silences(now),
            nodes=nodes,
            leaders=await reports.leaders(Tuning.read_rows),
            schedules=await reports.schedule_lags(Tuning.read_rows, now),
            events=await reports.lately(LATELY, TROUBLE_SECONDS, 500, now),
            unhandled=await reports.unhandled_breaches(Tuning.unhandled_days, 100, now),
            transactions=await reports.transactions(20, now),
            failures=await self._failures(now),
            interrupted=await reports.interrupted(STOPPED_RUNS),
            failing=await reports.failing_schedules(TROUBLE_SECONDS, Tuning.check_discards, now),
            died=await reports.died(DEATH_SECONDS, Tuning.check_deaths, now),
            limits=await reports.limits(now),
            limited=await reports.limit_waits(now),
            pauses=await reports.pauses(now),
            durable=await reports.durable_counts(now),
            grace=self._settings.grace,
            pin_seconds=self._settings.pin_seconds,
            overdue_seconds=self._settings.overdue_seconds,
        )

    async def look(self, apps: Collection[str] = ()) -> tuple[Facts | None, list[Finding]]:
        """The facts and what is wrong now. If the facts cannot be read: None, and why."""
        try:
            facts = await self.facts()
        except errors.LeaseworkError as error:
            return None, await self.unread(error)
        return facts, problems(facts, apps)

    async def unread(self, error: errors.LeaseworkError) -> list[Finding]:
        """Why the facts could not be read: the error, and the session that blocks, if one does."""
        blockers = []
        with suppress(errors.LeaseworkError):
            blockers = await self._reports.blockers(self._env.due_now())
        return database_problems(error, blockers)

    async def _pace(self, nodes: list[NodeView], clock: datetime, now: Now) -> list[Pace]:
        """Of tasks with jobs that run for long, or took more than a second lately."""
        since = clock - timedelta(seconds=TROUBLE_SECONDS)
        recent: dict[str, Counts] = {}
        for row in await self._reports.history(since, None, Tuning.pace_rows):
            recent[row.task_name] = added([recent.get(row.task_name, {}), row.run])
        lately = {task: _median(counts) for task, counts in recent.items()}
        slow = {task for task, seconds in lately.items() if seconds and seconds > 1.0}
        slow |= {str(job["task"]) for node in nodes for job in (node.info or {}).get("long") or ()}
        tasks = sorted(slow)[: Tuning.pace_tasks]
        found = []
        for task, run in await self._reports.usual(tasks, now) if tasks else []:
            whole = added([run])
            usual, longest = _median(whole), percentile(whole, 0.99)
            if usual is not None and longest is not None:
                found.append(Pace(task, lately.get(task), usual, longest))
        return found

    async def _failures(self, now: Now) -> list[TaskFailures]:
        """Failures by task. The history counts whole minutes; this adds what finished since."""
        found = []
        for outcome in ("discarded", "retryable"):
            rows = await self._reports.failures(outcome, TROUBLE_SECONDS, now)
            newer = await self._reports.finished(rows[0].counted_until) if rows else {}
            found += [r._replace(finished=r.finished + newer.get(r.task, 0)) for r in rows]
        return found

    async def problems(self) -> list[Finding]:
        """What is wrong now, in sentences: causes, each with its symptoms."""
        return (await self.look())[1]

    async def app_of(self, name: str, app: str | None = None) -> str:
        """The application that the schedule belongs to. ``app`` is needed only if two applications
        have a schedule of that name. Raises BadSchedule."""
        check_text("a schedule's name", name, self._settings.limits.text_chars)
        schedules = partial(self._reports.schedules, Tuning.read_rows, longest=0)
        apps = [row.app for row in await schedules(name=name)]
        if app is None and len(apps) > 1:
            raise errors.BadSchedule(
                f"{len(apps)} applications have a schedule {name!r}: {', '.join(apps)}",
                do="Say which one: --app NAME",
            )
        chosen = app if app is not None else next(iter(apps), "")
        if chosen not in apps:
            known = [row.name for row in await schedules(app=app)]
            where = f" in the application {app!r}" if app is not None else ""
            raise errors.BadSchedule(
                f"no schedule is named {name!r}{where}", do=errors.suggest(name, known)
            )
        return chosen


def _median(counts: Counts) -> float | None:
    """None if there are too few."""
    return percentile(counts, 0.5) if sum(counts.values()) >= PACE_JOBS else None


def check_kind(kind: str | None) -> None:
    """Raises ConfigError for a kind that is not in the catalogue of this version."""
    if kind is not None and kind not in CATALOGUE:
        raise errors.ConfigError(f"no event is named {kind!r}", do=errors.suggest(kind, CATALOGUE))


def _checked(limit: int) -> int:
    if not 1 <= limit <= Tuning.read_rows:
        raise errors.ConfigError(f"limit must be from 1 to {Tuning.read_rows:,}", got=limit)
    return limit
