"""Duties of the leader: stager, rescuer, periodic and pruner.

Each is right with two leaders alive. What a stale leader must not do (stage, fire, bury) checks
the fence FOR SHARE in its own statement; what anybody may do at any time (free the dead, prune)
needs none. The rows' own guards decide.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from leasehold.config import Limits, Polling, Retention, Settings, Tuning
from leasehold.duties.historian import Historian
from leasehold.env import Env
from leasehold.errors import Conflict, LostLease, QueryFailed, UsageError, told
from leasehold.lease.guard import Guard
from leasehold.loops.service import Loop, Service
from leasehold.model.former import redefined
from leasehold.model.missed import STEP_TOLERANCE_SECONDS, Missed, Moments, plan
from leasehold.model.schedule import Spec
from leasehold.ports import (
    DueSchedule,
    LeftOut,
    OperatorStore,
    ScheduleStore,
    Store,
    Term,
    TickDecision,
    TickPlan,
)
from leasehold.telemetry import Emit

_PAGE, _PAGES = 100, 10
"""So many dead nodes are looked at in one go, so often in one round."""

GetTerm = Callable[[], Term]
"""The term under which the duty runs. Raises LostLease when there is none at this moment."""


def term_of(guard: Guard, name: str) -> GetTerm:
    def get() -> Term:
        term = guard.term(name)
        if term is None:
            raise LostLease("this process does not lead at this moment", got=name)
        return term

    return get


class Stager(Service):
    """Due → available."""

    name = "stager"

    def __init__(self, store: Store, limits: Limits, polling: Polling, term: GetTerm) -> None:
        self._store = store
        self._limits = limits
        self._polling = polling
        self._term = term

    async def tick(self, now: datetime | None) -> float:
        staged = await self._store.stage(self._term(), self._limits.batch_rows, now)
        if staged.count + staged.held_on >= self._limits.batch_rows:
            return 0.0
        if staged.next_in is None:
            return self._polling.stage
        return min(max(staged.next_in, 0.001), self._polling.stage)


class Rescuer(Service):
    """Declares silent nodes dead and frees what dead nodes held."""

    name = "rescuer"

    def __init__(
        self, store: Store, limits: Limits, guard: Guard, term: GetTerm, emit: Emit, every: float
    ) -> None:
        self._store = store
        self._limits = limits
        self._guard = guard
        self._term = term
        self._emit = emit
        self._every = every

    async def tick(self, now: datetime | None) -> float:
        for node in self._guard.silent_nodes():
            worker = await self._store.bury(self._term(), node.id, node.seen.token, node.seen.seq)
            if worker:
                self._emit("node_died", dead=worker, silent=node.seen.lease_seconds)
        freed = await free_the_dead(self._store, self._limits, self._emit, now)
        return 0.0 if freed >= self._limits.batch_rows else self._every


async def free_the_dead(store: Store, limits: Limits, emit: Emit, now: datetime | None) -> int:
    """Free one batch of jobs of nodes that are gone; how many. Anybody may do this at any time:
    what it frees, nobody can hold. Nodes with a row that somebody holds locked are passed over:
    they must not hide those that died later."""
    count = held = 0
    for _ in range(_PAGES):
        deaths = dict(await store.deaths(_PAGE, held))
        if not deaths:
            break
        nodes = list(deaths)
        freed = await store.rescue(nodes, limits.max_crashes, limits.batch_rows, now)
        for job in freed:
            kind = "job_quarantined" if job.quarantined else "job_rescued"
            emit(kind, job=job.job, dead=deaths.get(job.dead, str(job.dead)))
        count += len(freed)
        if len(freed) >= limits.batch_rows:
            break  # there may be more of theirs
        held += len(nodes) - await store.settle(nodes)
        if len(nodes) < _PAGE:
            break
    return count


_REFUSALS = (UsageError, QueryFailed)
"""What is wrong is in a row, and not with the database."""


def _definition(schedule: DueSchedule) -> tuple[int, str]:
    return schedule.mark, schedule.missed


class Periodic(Service):
    """Fires due ticks: each moment of a schedule is decided once, and recorded."""

    name = "periodic"
    pause = 0.2

    def __init__(
        self,
        app: str,
        store: ScheduleStore,
        env: Env,
        limits: Limits,
        retention: Retention,
        term: GetTerm,
        emit: Emit,
    ) -> None:
        self._app = app
        self._store = store
        self._env = env
        self._limits = limits
        self._retention = retention
        self._term = term
        self._emit = emit
        self._clock_stepped = False
        self._made_at = env.boot_now()
        self._undecidable: dict[str, tuple[DueSchedule, float]] = {}
        """By name: what we could not decide, and when (boot clock) we try it again."""

    async def tick(self, now: datetime | None) -> float:
        without = self._left_out()
        due = await self._store.due_schedules(self._app, self._limits.batch_rows, now, without)
        if due:
            # a fair share for each: after an outage one may have thousands, and the statement has
            # to end in its time, with the ticks of the others that are on time still
            share = max(Tuning.schedule_ticks, self._limits.batch_rows // len(due))
            plans = [plan for plan in (self._try_to_decide(s, share) for s in due) if plan]
            if not plans:
                return 0.0  # what they hid is looked at without them
            written = await self._fire(plans, {schedule.name: schedule for schedule in due}, now)
            # nothing written: another leader was faster, or we lead no more
            return 0.0 if written else self.pause
        next_in, ahead = await self._store.next_schedule(self._app, now, without)
        self._watch_clock(ahead)
        return min(max(next_in, 0.0) + 0.001, 5.0) if next_in is not None else 5.0

    def _left_out(self) -> list[LeftOut]:
        """Not for ever: a zone may be installed meanwhile."""
        boot_now = self._env.boot_now()
        left_out = [bad for bad, again_at in self._undecidable.values() if boot_now < again_at]
        return [LeftOut(bad.name, bad.mark, bad.missed) for bad in left_out]

    def _try_to_decide(self, schedule: DueSchedule, share: int) -> TickPlan | None:
        """None: this host lacks its time zone, or a newer release wrote what we cannot read."""
        try:
            return self._decide(schedule, share)
        except Exception as error:  # one of them must not silence all
            self._leave_out(schedule, error)
            return None

    async def _fire(
        self, plans: list[TickPlan], due: dict[str, DueSchedule], now: datetime | None
    ) -> set[str]:
        """The names of those that were written. A job that the database refuses (a newer release
        wrote it, or somebody by hand) must not silence all: halves are tried until it is alone."""
        try:
            written = await self._store.fire(self._term(), self._app, plans, now)
        except _REFUSALS as error:
            if len(plans) == 1:
                self._leave_out(due[plans[0].name], error)
                return set()
            half = len(plans) // 2
            first = await self._fire(plans[:half], due, now)
            return first | await self._fire(plans[half:], due, now)
        names = {name for name, _, _ in written}
        for name in names:
            self._undecidable.pop(name, None)
        self._tell(plans, names, due)
        return names

    def _leave_out(self, schedule: DueSchedule, error: Exception) -> None:
        """For a while. Told once for each definition."""
        known = self._undecidable.get(schedule.name)
        again_at = self._env.boot_now() + Tuning.refused_schedule_seconds
        self._undecidable[schedule.name] = schedule, again_at
        if not known or _definition(known[0]) != _definition(schedule):
            text = told(error)
            self._emit("schedule_undecidable", schedule=schedule.name, error=text)

    def _decide(self, schedule: DueSchedule, share: int) -> TickPlan:
        spec = Spec.from_json(schedule.spec)
        moments: Moments = spec
        if schedule.former:
            moments = redefined(spec, schedule.former, partial(self._unreadable, schedule.name))
        decided = plan(
            moments,
            high_water=schedule.high_water,
            next_at=schedule.next_at,
            now=schedule.now,
            missed=Missed(schedule.missed),
            grace_seconds=schedule.grace_seconds,
            catch_up_seconds=self._retention.catch_up_seconds,
            limit=share,
        )
        ticks = [TickDecision(at, "missed") for at in decided.missed]
        if decided.jumped:
            first, last = decided.jumped
            ticks.append(TickDecision(first, "missed", until=last))
        ticks += [TickDecision(at, "fired", self._env.new_id()) for at in decided.fires]
        return TickPlan(
            schedule.name,
            schedule.release,
            schedule.high_water,
            decided.high_water,
            decided.next_at,
            tuple(ticks),
        )

    def _unreadable(self, name: str, error: Exception) -> None:
        self._emit("schedule_undecidable", schedule=name, error=f"as it was before: {told(error)}")

    def _stopped(self, now: datetime, first: datetime) -> float | None:
        """Seconds from the first missed moment until now, if it passed before this process began:
        then nothing ran, or we would not be the ones who decide it."""
        began = now - timedelta(seconds=self._env.boot_now() - self._made_at)
        return round((now - first).total_seconds(), 1) if first < began else None

    def _tell(self, plans: list[TickPlan], written: set[str], due: dict[str, DueSchedule]) -> None:
        for decided in plans:
            missed = [tick for tick in decided.ticks if tick.state == "missed"]
            if missed and decided.name in written:
                self._emit(
                    "tick_missed",
                    schedule=decided.name,
                    first=str(missed[0].at),
                    last=str(missed[-1].until or missed[-1].at),
                    stopped=self._stopped(due[decided.name].now, missed[0].at),
                )

    def _watch_clock(self, ahead: float) -> None:
        """A decided moment ahead of the clock: it was set back. Nothing fires again; told once."""
        stepped = ahead > STEP_TOLERANCE_SECONDS
        if stepped and not self._clock_stepped:
            self._emit("clock_stepped", ahead=round(ahead, 1))
        self._clock_stepped = stepped


class Pruner(Service):
    """Makes the days of history ahead and drops what is past keeping."""

    name = "pruner"

    def __init__(
        self,
        store: OperatorStore,
        env: Env,
        limits: Limits,
        retention: Retention,
        term: GetTerm,
        emit: Emit,
    ) -> None:
        self._store = store
        self._env = env
        self._limits = limits
        self._retention = retention
        self._term = term
        self._emit = emit
        self._days_at = 0.0
        """By the boot clock: when the days may be asked for again."""
        self._held = 0
        """So many times in a row somebody held them."""

    async def tick(self, now: datetime | None) -> float:
        self._term()
        await self._prune_days(now)
        days = {
            "events": self._retention.events_days,
            "ticks": self._retention.ticks_days,
            "attempts": self._retention.attempts_days,
            "history": self._retention.history_days,
        }
        gone = await self._store.prune(days, self._limits.batch_rows, now)
        if gone >= self._limits.batch_rows:
            return 1.0
        return Tuning.prune_held_seconds if self._held else 600.0

    async def _prune_days(self, now: datetime | None) -> None:
        """A dump or another long reader may hold them; what asks for them keeps acks waiting
        behind it, so it asks rarely, and the rows are pruned all the same."""
        boot_now = self._env.boot_now()
        if boot_now < self._days_at:
            return
        try:
            await self._store.prune_days(self._retention.finished_days, now)
        except Conflict as error:
            self._days_at = boot_now + Tuning.prune_held_seconds
            self._held += 1
            if self._held == Tuning.prune_held_tries:
                self._emit("service_failed", service=self.name, error=f"Conflict: {error}")
        else:
            self._held = 0


def leader_duties(
    settings: Settings,
    store: Store,
    env: Env,
    guard: Guard,
    emit: Emit,
    leads: Callable[[], bool],
) -> dict[str, Loop]:
    """All of them by name; each works only while ``leads()``."""
    term = term_of(guard, settings.name)
    limits, retention = settings.limits, settings.retention
    duties: list[Service] = [
        Stager(store, limits, settings.polling, term),
        Rescuer(store, limits, guard, term, emit, settings.timings.renew),
        Periodic(settings.name, store, env, limits, retention, term, emit),
        Pruner(store, env, limits, retention, term, emit),
        Historian(store, term, retention.history_days > 0),
    ]
    return {duty.name: Loop(duty, env, emit, leads) for duty in duties}
