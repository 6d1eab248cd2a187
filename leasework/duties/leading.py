"""Duties of the leader: stager, rescuer, periodic, pruner and historian.

What a stale leader must not do (stage, fire, bury) checks the fence FOR SHARE in the same
statement. Other duties need no fence, because conditions on the rows protect them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from leasework.config import Limits
from leasework.errors import (
    Conflict,
    LeaseworkError,
    LostLease,
    QueryFailed,
    Unavailable,
    UsageError,
    told,
)
from leasework.lease.guard import Guard
from leasework.loops.service import BatchSize, Loop, Service, ServiceContext
from leasework.model.former import redefined
from leasework.model.missed import STEP_TOLERANCE_SECONDS, Missed, Moments, plan
from leasework.model.moments import in_seconds
from leasework.model.schedule import Spec
from leasework.store.operation import Term
from leasework.store.schedules import DueSchedule, LeftOut, TickDecision, TickPlan
from leasework.store.store import Store
from leasework.telemetry import Emit
from leasework.tuning import Tuning

GetTerm = Callable[[], Term]
"""Returns the term under which the duty runs. Raises LostLease if this process does not lead."""


def term_of(guard: Guard) -> GetTerm:
    def get() -> Term:
        term = guard.term()
        if term is None:
            app = guard.membership.identity.app
            raise LostLease("this process does not lead at this moment", got=app)
        return term

    return get


class Duty(Service):
    """A service of the leader."""

    def __init__(self, context: ServiceContext, term: GetTerm) -> None:
        super().__init__(context)
        self._term = term


class Stager(Duty):
    """Makes due jobs available. Its look at the database is also that of four other services,
    which it wakes: ``on_deadline`` when one has passed, ``on_dead`` when dead nodes may hold jobs,
    ``on_schedule`` when a moment is due, ``on_batch`` while a batch is open."""

    name = "stager"
    on_deadline: Callable[[], None]
    on_dead: Callable[[], None]
    on_schedule: Callable[[], None]
    on_batch: Callable[[], None]

    async def tick(self, now: datetime | None) -> float:
        staged = await self._store.stage(self._term(), self._limits.batch_rows, now)
        if staged.dead:
            self.on_dead()
        if staged.schedules:
            self.on_schedule()
        if staged.batches:
            self.on_batch()
        soon: float = in_seconds(self._settings.polling.stage)
        if staged.deadline_in is not None:
            if staged.deadline_in <= 0:
                self.on_deadline()
            else:
                soon = min(soon, staged.deadline_in + 0.001)
        if staged.count + staged.held_on >= self._limits.batch_rows:
            return 0.0
        return soon if staged.next_in is None else min(max(staged.next_in, 0.001), soon)


class Rescuer(Duty):
    """Declares silent nodes dead, and frees the jobs of dead nodes. The guard wakes it when a node
    falls silent, and the stager when dead nodes may hold jobs. It also walks slowly over all jobs,
    for those of nodes that do not exist and whose claims nothing else tells."""

    name = "rescuer"

    def __init__(self, context: ServiceContext, guard: Guard, term: GetTerm) -> None:
        super().__init__(context, term)
        self._guard = guard
        self._page = 0
        self._search_at = 0.0
        """When to search the next pages for stranded jobs (boot clock)."""

    async def tick(self, now: datetime | None) -> float:
        silent, locked = self._guard.silent_nodes(), None
        for node, seen, *_ in silent:
            try:
                worker = await self._store.bury(self._term(), node, seen.token, seen.seq)
            except Conflict as error:
                locked = error  # the others are dead all the same
                continue
            if worker:
                self._emit("node_died", dead=worker, silent=seen.lease_seconds)
        idle = max(self._settings.timings.renew, Tuning.rescue_idle_seconds)
        if (boot_now := self._env.boot_now()) >= self._search_at:
            self._page, _ = await self._store.note_stranded(self._page, Tuning.stranded_pages)
            self._search_at = boot_now + (Tuning.stranded_seconds if self._page else idle)
        freed = await free_the_dead(self._store, self._limits, self._emit, now)
        if freed >= self._limits.batch_rows:
            return 0.0
        if locked is not None:
            raise locked
        wait = self._settings.timings.renew if silent else idle
        return min(wait, max(self._search_at - boot_now, 0.0))


async def free_the_dead(store: Store, limits: Limits, emit: Emit, now: datetime | None) -> int:
    """Free one batch of the jobs of dead nodes, and return how many. This is safe in any process at
    any time, because nobody can hold those jobs. Nodes with a locked row are skipped, so that they
    do not hide nodes that died later."""
    count = held = 0
    for _ in range(Tuning.rescue_pages):
        deaths = dict(await store.deaths(Tuning.rescue_page, held))
        if not deaths:
            break
        nodes = list(deaths)
        freed = await store.rescue(nodes, limits.max_crashes, limits.batch_rows, now)
        for job in freed:
            kind = "job_quarantined" if job.quarantined else "job_rescued"
            emit(kind, job=job.job, dead=deaths.get(job.dead, str(job.dead)))
        count += len(freed)
        if len(freed) >= limits.batch_rows:
            break  # they may have more
        held += len(nodes) - await store.settle(nodes)
        if len(nodes) < Tuning.rescue_page:
            break
    return count


class Batches(Duty):
    """Ends batches whose jobs have all ended. The stager wakes it while one is open."""

    name = "batches"
    _next_at = 0.0
    """When to look at the open batches again (boot clock)."""

    async def tick(self, now: datetime | None) -> float:
        self._term()
        began = self._env.boot_now()
        if began < self._next_at:
            return self._next_at - began
        ended, left = await self._store.end_batches(now)
        # a look costs a descent of an index for each open batch; one that a fault held up, no more
        spent = self._env.boot_now() - began
        pause = 0.0 if ended >= 100 else max(Tuning.batch_seconds, min(10 * spent, 10.0))
        self._next_at = self._env.boot_now() + pause
        return pause if left else 60.0


_REFUSALS = (UsageError, QueryFailed)
"""Errors that one row causes, rather than the database."""


class Periodic(Duty):
    """Fires due ticks: decides each moment of a schedule once, and records the decision."""

    name = "periodic"
    pause = 0.2

    def __init__(self, context: ServiceContext, term: GetTerm) -> None:
        super().__init__(context, term)
        self._app = context.settings.name
        self._clock_stepped = False
        self._batch = BatchSize(self._limits.batch_rows)
        """Of moments."""
        self._made_at = self._env.boot_now()
        self._undecidable: dict[str, tuple[LeftOut, float]] = {}
        """Schedules that could not be decided, by name, and when to try again (boot clock)."""

    async def tick(self, now: datetime | None) -> float:
        without = self._left_out()
        most = max(self._batch.now, 2)  # one that is behind, and one that is on time
        due = await self._store.due_schedules(self._app, most, now, without)
        present = {s.name for s in due} | {s.name for s in without}  # others have been deleted
        self._undecidable = {n: bad for n, bad in self._undecidable.items() if n in present}
        if due:
            # A fair share for each: after an outage one schedule may have thousands of ticks, which
            # must not exceed the statement's time or delay the schedules that are on time.
            share = max(Tuning.schedule_ticks, self._batch.now // len(due))
            plans: list[TickPlan] = []
            began = self._env.boot_now()
            for schedule in due:
                if plan := self._try_to_decide(schedule, share):
                    plans.append(plan)
                if self._env.boot_now() - began > Tuning.stretch_seconds:
                    await asyncio.sleep(0)  # the application's own work in this loop goes on
                    began = self._env.boot_now()
            if not plans:
                return 0.0  # look again, without these
            began, ticks = self._env.boot_now(), sum(len(plan.ticks) for plan in plans)
            try:
                written = await self._fire(plans, {s.name: s for s in due}, now)
            except Unavailable:  # fewer at once may fit into the statement's time
                self._batch.unanswered(ticks)
                raise
            self._batch.answered(ticks, self._env.boot_now() - began)
            # nothing written: another leader was faster, or we no longer lead
            return 0.0 if written else self.pause
        next_in, ahead = await self._store.next_schedule(self._app, now, without)
        self._watch_clock(ahead)
        look = Tuning.schedule_look_seconds if self.decides_all else Tuning.undecided_look_seconds
        return look if next_in is None else min(max(next_in, 0.0) + 0.001, look)

    @property
    def decides_all(self) -> bool:
        """False while a moment stays due because its schedule cannot be decided."""
        return not self._undecidable

    def _left_out(self) -> list[LeftOut]:
        """The schedules to skip for now. Each is retried later: a time zone may get installed."""
        boot_now = self._env.boot_now()
        return [bad for bad, again_at in self._undecidable.values() if boot_now < again_at]

    def _try_to_decide(self, schedule: DueSchedule, share: int) -> TickPlan | None:
        """Decide, or return None: its time zone is missing, or a newer release wrote it."""
        try:
            return self._decide(schedule, share)
        except Exception as error:  # one must not stop the others
            self._leave_out(schedule, error)
            return None

    async def _fire(
        self, plans: list[TickPlan], due: dict[str, DueSchedule], now: datetime | None
    ) -> set[str]:
        """Write the plans, and return the names of those written. If the database refuses a job (of
        a newer release, or edited by hand), it tries halves, so that only that one is left out."""
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
        """Skip a schedule for a while. Emit one event per definition."""
        known = self._undecidable.get(schedule.name)
        bad = LeftOut(schedule.name, schedule.mark, schedule.missed)
        again_at = self._env.boot_now() + Tuning.refused_schedule_seconds
        self._undecidable[schedule.name] = bad, again_at
        if not known or known[0] != bad:
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
            catch_up_seconds=in_seconds(self._settings.retention.catch_up_seconds),
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
            schedule.mark,
        )

    def _unreadable(self, name: str, error: Exception) -> None:
        self._emit("schedule_undecidable", schedule=name, error=f"as it was before: {told(error)}")

    def _stopped(self, now: datetime, first: datetime) -> float | None:
        """Seconds since the first missed moment, if that was before this process started."""
        began = now - timedelta(seconds=self._env.boot_now() - self._made_at)
        return round((now - first).total_seconds(), 1) if first < began else None

    def _tell(self, plans: list[TickPlan], written: set[str], due: dict[str, DueSchedule]) -> None:
        for decided in plans:
            missed = [tick for tick in decided.ticks if tick.state == "missed"]
            if missed and decided.name in written:
                schedule = due[decided.name]
                first, last = missed[0].at, missed[-1].until or missed[-1].at
                paused_at, resumed_at = schedule.paused_at, schedule.resumed_at
                self._emit(
                    "tick_missed",
                    schedule=decided.name,
                    first=str(first),
                    last=str(last),
                    stopped=self._stopped(schedule.now, first),
                    paused=bool(
                        paused_at and resumed_at and paused_at <= first <= last <= resumed_at
                    ),
                )

    def _watch_clock(self, ahead: float) -> None:
        """Report once that the clock was set back behind a decided moment, which never refires."""
        stepped = ahead > STEP_TOLERANCE_SECONDS
        if stepped and not self._clock_stepped:
            self._emit("clock_stepped", ahead=round(ahead, 1))
        self._clock_stepped = stepped


class Historian(Duty):
    """Counts the jobs finished in each minute, and folds the metrics' counts. Counting a minute
    again gives the same rows."""

    name = "historian"
    _counted: datetime | None = None

    async def tick(self, now: datetime | None) -> float:
        self._term()
        behind = await self._store.fold_counts(Tuning.history_rows) >= Tuning.history_rows
        if self._settings.retention.history_days > 0:
            before, self._counted = self._counted, await self._store.roll_up(self._counted, now)
            # after an outage there are more minutes than one statement counts
            if before is not None and (self._counted - before).total_seconds() > 290:
                behind = True
        return 0.0 if behind else Tuning.history_seconds


class Pruner(Duty):
    """Creates the partitions of coming days, and deletes expired rows and partitions."""

    name = "pruner"
    _days_at = 0.0
    """When the days may be tried again (boot clock)."""
    _held = 0
    """How many times in a row they were locked."""

    async def tick(self, now: datetime | None) -> float:
        self._term()
        await self._prune_days(now)
        kinds = ("events", "ticks", "attempts", "history", "finished")
        days = {kind: getattr(self._settings.retention, f"{kind}_days") for kind in kinds}
        gone = await self._store.prune(days, self._limits.batch_rows, now)
        if gone >= self._limits.batch_rows:
            return 0.1
        return Tuning.prune_held_seconds if self._held else 600.0

    async def _prune_days(self, now: datetime | None) -> None:
        """Create and drop days. A long reader such as a dump may lock them, and acks then wait
        behind this, so it retries rarely. The pruning of rows does not depend on it."""
        boot_now = self._env.boot_now()
        if boot_now < self._days_at:
            return
        try:
            await self._store.prune_days(self._settings.retention.finished_days, now)
        except LeaseworkError as error:
            self._days_at = boot_now + Tuning.prune_held_seconds
            self._held += 1
            # Unavailable: they are locked, or it took longer than a call may
            if self._held % Tuning.prune_held_tries == 0 or not isinstance(error, Unavailable):
                self._emit("service_failed", service=self.name, error=told(error))
        else:
            self._held = 0


def leader_duties(
    context: ServiceContext, guard: Guard, on_deadline: Callable[[], None]
) -> dict[str, Loop]:
    """All duties by name. Each works only while the guard leads. ``on_deadline`` is called when a
    deadline has passed."""
    term = term_of(guard)
    stager, periodic = Stager(context, term), Periodic(context, term)
    duties = [stager, Rescuer(context, guard, term), periodic]
    duties += [kind(context, term) for kind in (Pruner, Historian, Batches)]
    loops = {duty.name: Loop(duty, context.env, context.emit, guard.leads) for duty in duties}
    stager.on_deadline = on_deadline
    stager.on_dead = loops["rescuer"].wake
    stager.on_batch = loops["batches"].wake

    def on_schedule() -> None:
        if periodic.decides_all:
            loops["periodic"].wake()

    stager.on_schedule = on_schedule
    return loops
