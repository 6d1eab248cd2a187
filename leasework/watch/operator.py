"""What a person does. Each action is recorded as an event with the person's name."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from leasework import errors
from leasework.config import Settings, check_text
from leasework.env import Env
from leasework.jobs.client import job_id_of, no_such_job
from leasework.jobs.family import cancel_family, retry_from
from leasework.loops.recorder import as_row
from leasework.model.codec import sealed
from leasework.model.filter import JobFilter, ids_that_begin
from leasework.model.job import JobOptions, JobRecord, encode
from leasework.model.missed import Missed
from leasework.model.moments import duration, is_number
from leasework.model.schedule import Spec
from leasework.model.states import WAITING, State
from leasework.store.operation import Now
from leasework.store.reports import Reports
from leasework.store.rows import FailureGroup, NodeView
from leasework.store.schedules import ScheduleDefinition
from leasework.store.store import Store
from leasework.telemetry import log, logger, make_event
from leasework.tuning import Tuning
from leasework.watch.bulk import CHANGED, BulkAction, check, count_matching
from leasework.watch.checks import KINDS
from leasework.watch.control import LimitControl, PauseControl, QueueControl
from leasework.watch.facts import stale
from leasework.watch.inspector import Inspector
from leasework.watch.refusals import code_defines, no_such_schedule
from leasework.watch.terms import EndedTerm, with_ends
from leasework.watch.why import why_waiting

_VERBS = {"cancel": "cancelled", "discard": "discarded"}
_SHOWN_IDS = 5
_LONGEST_SILENCE = 30 * 86_400.0


class Operator:
    """Acts for the person ``who``, via ``web`` or ``cli``, with no access that others lack. The
    ``reason`` is that of all its acts that are not given another."""

    def __init__(
        self, store: Store, reports: Reports, lists: Reports, env: Env, settings: Settings,
        who: str, via: str, reason: str = "",
    ) -> None:  # fmt: skip
        self.store = store
        self.reports = reports
        self.lists = lists
        """Reports that may come from a replica, some seconds late."""
        self.inspector = Inspector(reports, env, settings)
        self._env = env
        self._settings = settings
        self.who = errors.storable(who)[: settings.limits.text_chars]
        self.via = via
        self.reason = check_text("a reason", reason, settings.limits.text_chars, empty=True)
        control = (store, reports, self._record, self._now, self._by)
        self.limits = LimitControl(*control)
        self.queues = QueueControl(*control)
        self.tasks = PauseControl(*control)

    async def job_named(self, given: str) -> UUID:
        """The job with this id, or the only one whose id begins like this. Raises JobNotFound."""
        ids = ids_that_begin(given)
        if ids is None or ids[0] == ids[1]:
            return job_id_of(given)
        first, last = ids
        found, _ = await self.reports.matching(JobFilter(first=first, last=last), None, _SHOWN_IDS)
        if len(found) == 1:
            return found[0]
        if not found:
            raise errors.JobNotFound(
                "no job's id begins like this", got=given, do="leasework jobs lists them"
            )
        raise errors.JobNotFound(
            "the ids of several jobs begin like this",
            got=given,
            do=f"Give more characters of one of them: {', '.join(str(job) for job in found)}",
        )

    async def silence(self, kind: str, subject: str, seconds: float, reason: str = "") -> None:
        """Silence problems of a kind for so many seconds; of one subject, or of all (empty). 0 ends
        the silence. Raises ConfigError."""
        reason = reason or self.reason
        if kind not in KINDS:
            do = errors.suggest(kind, KINDS)
            raise errors.ConfigError("no such kind of problem", got=kind, do=do)
        if not 0 <= seconds <= _LONGEST_SILENCE:
            raise errors.ConfigError("a silence lasts at most 30 days", got=f"{seconds:g} s")
        if seconds and not reason:
            raise errors.ConfigError("a silence needs a reason", do="Give --reason TEXT")
        most = self._settings.limits.text_chars
        subject, reason = errors.storable(subject)[:most], errors.storable(reason)[:most]
        await self.store.silence(kind, subject, seconds, self.who, reason, self._now())
        verb = f"silence for {duration(seconds)}" if seconds else "end the silence"
        await self._record(verb, f"{kind} {subject}".rstrip(), 1, reason)

    async def why(self, record: JobRecord) -> list[str]:
        """Why a job does not run yet, as sentences: see :func:`why_waiting`."""
        if record.state not in WAITING:
            return []
        reports = self.reports
        nodes = [n for n in await reports.nodes(Tuning.shown_nodes) if not stale(n)]
        more, keys = await reports.job(record.id), await reports.key_waits(record.id)
        pauses, steps = await reports.pauses(), await reports.steps(record.id)
        return why_waiting(record, more, nodes, keys, pauses, steps)

    async def cancel(self, given: UUID | str, reason: str = "", *, family: bool = False) -> str:
        """``waiting`` (it is cancelled), ``running`` (its cancellation was requested), ``finished``
        (nothing to do). ``family``: also the jobs that it has made. Raises JobNotFound,
        Conflict."""
        job, why = job_id_of(given), self._reason("cancelled", reason)
        if not family:
            where = await self.store.cancel(job, why, self._now())
            return await self._told("cancel", job, where)
        where = await cancel_family(self.store, job, why, self._now())
        return await self._told("cancel", job, where, " and its family")

    async def requeue(self, given: UUID | str) -> State | None:
        """Take a running job from its worker and queue it again. Its handler may go on, but can
        record nothing. Returns its state now; RUNNING: the handler's own transaction has locked it.
        None: it does not run. Raises JobNotFound."""
        record = await self.store.get(job := job_id_of(given))
        if record is None:
            raise no_such_job(job)
        if record.state is not State.RUNNING or record.claim_token is None:
            return None
        state = await self.store.requeue(job, record.claim_token, self._now())
        if state not in (None, State.RUNNING):
            await self._record("requeue", f"job {job}", 1)
        return state

    async def retry(self, given: UUID | str, step: str | None = None) -> str:
        """``waiting`` or ``finished`` (it may run now), ``running`` (nothing changed). ``step``:
        repeat this step and those after it. Raises JobNotFound, Conflict, BadJob."""
        job = job_id_of(given)
        if step is None:
            return await self._told("retry", job, await self.store.retry(job, self._now()))
        where = await retry_from(self.store, job, step, self._now())
        return await self._told("retry", job, where, f" from the step {step!r}")

    async def signal(self, given: UUID | str, name: str, payload: Any = None) -> str:
        """Send a signal to a job: ``sent`` (it waits for this one), ``kept`` (until it does),
        ``finished`` (nothing to do). Raises JobNotFound, BadPayload if ``payload`` is not JSON."""
        job = job_id_of(given)
        check_text("a signal's name", name, self._settings.limits.text_chars)
        limit = self._settings.payload_limit
        what = "a signal's payload"
        text = None if payload is None else sealed(None, what, encode(what, payload, limit), limit)
        steps = await self.reports.steps(job)
        events = {step.name.partition("[")[0] for step in steps if step.open}
        sent = await self.store.signal(job, name, text, self._now())
        if sent is None and await self.store.get(job) is None:
            raise no_such_job(job)
        if sent:
            await self._record("signal", f"job {job}: {name}", 1)
        return ("sent" if name in events else "kept") if sent else "finished"

    async def discard(self, given: UUID | str, reason: str = "") -> str:
        """``waiting`` or ``quarantined`` (it is discarded), ``running`` or ``finished`` (nothing
        changed). Raises JobNotFound, Conflict."""
        job = job_id_of(given)
        where = await self.store.discard(job, self._reason("discarded", reason), self._now())
        return await self._told("discard", job, where)

    async def reprioritize(self, given: UUID | str, priority: int) -> str:
        """``waiting`` (it has this priority now), ``running`` or ``finished`` (nothing changed).
        Raises JobNotFound, Conflict, BadJob for a number out of range."""
        job = job_id_of(given)
        options = JobOptions("any", priority=priority)  # which checks it
        where = await self.store.reprioritize(job, options.priority)
        return await self._told("reprioritize", job, where, f" to {priority}")

    async def ask_stack(self, given: UUID | str) -> bool:
        """Ask the job's node for the stack of its handler, which ``reports.stack`` shows after the
        node's next renewal. False if the job does not run. Raises JobNotFound."""
        job = job_id_of(given)
        asked = await self.store.ask_stack(job, self._env.new_id(), self._now())
        if not asked and await self.store.get(job) is None:
            raise no_such_job(job)
        if asked:
            await self._record("look at the stack", f"job {job}", 1)
        return asked

    async def _told(self, act: str, job: UUID, where: str | None, how: str = "") -> str:
        if where is None:
            raise no_such_job(job)
        if where in CHANGED[act]:
            await self._record(act, f"job {job}{how}", 1)
        return where

    async def failures(self, seconds: float = 86400.0, limit: int = 50) -> list[FailureGroup]:
        """The failed attempts of the last ``seconds`` by what their errors have in common, the
        group with the most first. The filter ``error:`` with its fingerprint finds its jobs."""
        if not is_number(seconds, 1, 366 * 86400):
            raise errors.ConfigError("seconds must be from 1 to a year", got=seconds)
        return await self.lists.failure_groups(seconds, limit)

    async def terms(self, limit: int) -> list[EndedTerm]:
        """The newest terms of all elections, and how each ended: see :func:`with_ends`."""
        rows = await self.inspector.terms(limit=limit)
        if not rows:
            return []
        since = min(row.acquired_at for row in rows)
        events = await self.reports.lease_events(since, Tuning.term_events)
        leaders = await self.reports.leaders(Tuning.read_rows)
        return with_ends(rows, events, leaders, await self.reports.database_now(None))

    async def seen(self, worker_id: str | None = None) -> int:
        """Mark a dead node as seen (None: all of them), so that ``status`` no longer reports it.
        Returns how many were unseen. Raises BadNode if none of them has this name."""
        count = await self.store.seen(worker_id, self._now())
        if worker_id is not None and not count:
            raise errors.BadNode(
                "no unacknowledged dead node has this name",
                got=worker_id,
                do="leasework status lists them. Leave the name out to acknowledge all of them",
            )
        if count:
            await self._record("seen", f"dead node {worker_id or '(all)'}", count)
        return count

    async def preview(
        self, wanted: JobFilter, act: str, *, may_stop: bool = False
    ) -> tuple[int, bool]:
        """How many jobs the action would find, and whether there may be more. ``may_stop``: the
        action will have a time limit. Raises BadFilter as :meth:`bulk` does."""
        check(act, wanted.state, may_stop=may_stop)
        return await count_matching(self.reports, act, wanted)

    async def bulk(
        self,
        act: str,
        wanted: JobFilter,
        words: str,
        reason: str = "",
        seconds: float | None = None,
        priority: int = 0,
    ) -> BulkAction:
        """``retry``, ``cancel``, ``discard`` or ``reprioritize`` (to ``priority``) the matching
        jobs. Stop after ``seconds``. ``words``: the filter as typed, for the record. Raises
        BadFilter for a state that the action does not change, and for a retry without a state."""
        check(act, wanted.state, may_stop=seconds is not None)
        why = self._reason(_VERBS[act], reason) if act in _VERBS else ""
        size = self._settings.limits.batch_rows
        action = BulkAction(self.store, self.reports, self._env, size, act, wanted, why)
        action.priority = JobOptions("any", priority=priority).priority  # checked
        try:
            await action.run(seconds)
        finally:
            if action.changed or action.unsure:
                on = f"jobs {words or 'of any kind'}"
                on += f" to {priority}" if act == "reprioritize" else ""
                unsure = f", and perhaps {action.unsure:,} more" if action.unsure else ""
                await self._record(act, on + unsure, action.changed)
        return action

    async def pause(self, name: str, app: str | None = None) -> str:
        """Stop a schedule until :meth:`resume`, and return its application's name. Raises
        BadSchedule."""
        return await self._switch(name, app, "pause")

    async def resume(self, name: str, app: str | None = None) -> str:
        """Start a paused schedule. Its policy for missed moments decides those in between."""
        return await self._switch(name, app, "resume")

    async def _switch(self, name: str, app: str | None, act: str) -> str:
        chosen = await self.inspector.app_of(name, app)
        if not await self.store.pause_schedule(chosen, name, act == "pause"):
            raise no_such_schedule(name)
        await self._record(act, f"schedule {name} of {chosen}", 1)
        return chosen

    async def run_now(self, name: str, app: str | None = None) -> UUID:
        """Enqueue a job of a schedule outside its ticks; returns its id. Raises BadSchedule."""
        chosen = await self.inspector.app_of(name, app)
        job = self._env.new_id()
        if not await self.store.run_schedule(chosen, name, job, self._now()):
            raise no_such_schedule(name)
        await self._record("run now", f"schedule {name} of {chosen}", 1)
        return job

    async def remove_schedule(self, name: str, app: str | None = None) -> str:
        """Remove a schedule whose code is gone, and return its application's name. A process that
        still defines it brings it back within a minute. Raises BadSchedule."""
        chosen = await self.inspector.app_of(name, app)
        if not await self.store.delete_schedule(chosen, name, in_code=True):
            raise no_such_schedule(name)
        await self._record("remove", f"schedule {name} of {chosen}", 1)
        return chosen

    async def put_schedule(
        self, app: str, name: str, spec: Spec, job: dict[str, Any], missed: Missed, grace: float
    ) -> None:
        """Make a schedule, or replace one that was put. ``job``: the options of its jobs, and
        ``payload``, their arguments. ``grace`` is in seconds. Raises BadSchedule."""
        now, moments = self._now(), spec.to_json()
        first = spec.first_at(await self.store.database_now(now))
        given = ScheduleDefinition(
            name, moments, spec.describe(), job["task"], job, str(missed), grace, first
        )
        if not await self.store.put_schedule(app, given.as_json(), now):
            raise code_defines(name)
        await self._record("put", f"schedule {name} of {app}", 1)

    async def halt(self, given: str) -> str:
        """Stop the node from claiming, from its next renewal on. Its running jobs continue.
        ``given``: its worker_id or the start of it. Returns the worker_id. Raises BadNode."""
        return await self._halt(given, "stop claiming", True)

    async def resume_node(self, given: str) -> str:
        """Let the node claim again. Raises BadNode."""
        return await self._halt(given, "claim again", False)

    async def drain_node(self, given: str, grace: float = 0.0) -> tuple[NodeView, bool]:
        """Stop the node from claiming. A worker process then exits: after its running jobs, or when
        ``grace`` and then its own grace are over, in seconds. A web process keeps running. Returns
        the node, and whether it will exit. Raises BadNode."""
        node = await self._node(await self._halt(given, "drain", True))
        end = self._env.boot_now() + grace
        while node and (node.info or {}).get("running") and self._env.boot_now() < end:
            await asyncio.sleep(Tuning.drain_look_seconds)
            node = await self._alive(node.id) or node
        return node, bool(await self.store.drain("", node.id))

    async def has_left(self, node: NodeView) -> list[UUID]:
        """Wait until the node has left. Returns the jobs that its stop interrupted."""
        since = await self.reports.database_now(None)
        while await self._alive(node.id):  # noqa: ASYNC110
            await asyncio.sleep(Tuning.drain_look_seconds)
        return await self.reports.cut(node.id, since)

    async def _alive(self, node: UUID) -> NodeView | None:
        nodes = await self.reports.nodes(Tuning.read_rows)
        return next((row for row in nodes if row.id == node and not stale(row)), None)

    async def _halt(self, given: str, act: str, halted: bool) -> str:
        node = await self._node(given)
        worker_id = await self.store.halt(node.id, halted)
        if worker_id is None:
            raise errors.BadNode(
                "this node is gone", got=given, do="leasework nodes lists those that are alive"
            )
        await self._record(act, f"node {worker_id}", 1)
        return worker_id

    async def _node(self, given: str) -> NodeView:
        """The node with this name, or the only one whose name begins like this."""
        nodes = await self.reports.nodes(Tuning.read_rows)
        names = [node.worker_id for node in nodes]
        whole = [node for node in nodes if given in (node.worker_id, str(node.id))]
        found = whole or [n for n in nodes if given and n.worker_id.startswith(given)]
        if not found:
            raise errors.BadNode("no such node", got=given, do=errors.suggest(given, names))
        if len(found) > 1:
            several = ", ".join(node.worker_id for node in found[:5])
            raise errors.BadNode(
                f"{len(found)} nodes match this name: {several}",
                got=given,
                do="Give more of the name of one of them",
            )
        return found[0]

    async def end_sessions(self) -> None:
        """End all sessions of dashboards with a login."""
        await self.store.end_session("", self._now())
        await self._record("end", "all sessions of the dashboard", 1)

    async def refused_login(self, came_from: str) -> None:
        await self._event("login_refused", came_from=came_from)

    def _by(self, reason: str) -> str:
        reason = reason or self.reason
        return f"by {self.who}" + (f": {reason}" if reason else "")

    async def _record(self, act: str, on: str, count: int, reason: str = "") -> None:
        reason = reason or self.reason
        said = check_text("reason", reason, self._settings.limits.text_chars) if reason else ""
        given = {"who": self.who, "via": self.via, "act": act, "on": on, "count": count}
        await self._event("person_acted", **given, **({"reason": said} if said else {}))

    async def _event(self, kind: str, **fields: object) -> None:
        """Write a log line and a row. A row that cannot be written does not undo the action."""
        event = make_event(kind, fields, self._env.boot_now())
        log(event, self.via)
        try:
            await self.store.record([as_row(event, None)], self._now())
        except (errors.Unavailable, errors.PermissionDenied) as error:
            # with a database role that may not record it, the log line remains
            logger.warning("%s is not among the events: %s", kind, error)

    def _reason(self, verb: str, given: str) -> str:
        if given := given or self.reason:
            return check_text("reason", given, self._settings.limits.text_chars)
        return f"{verb} by {self.who}"

    def _now(self) -> Now:
        return self._env.due_now()


def drained(node: NodeView, ends: bool) -> str:
    """What :meth:`Operator.drain_node` has begun, as a sentence."""
    if ends:
        return (
            f"{node.worker_id} exits when its running jobs have finished, or its grace is over. "
            "Jobs that still run then return to the queue."
        )
    return f"{node.worker_id} stops claiming jobs. Stop the process itself where you started it."
