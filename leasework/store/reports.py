"""What people and their tools read: ``status``, the commands that list, the dashboard, metrics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from leasework.pg.connection.pool import Pool, check_schema
from leasework.pg.connection.session import SCHEMA_NUMBERS
from leasework.store import rows
from leasework.store.durable import DurableReports
from leasework.store.limits import KeyWait, LimitKeyView, LimitView, PauseView, QueueWaits
from leasework.store.listing import JobLists
from leasework.store.operation import Now, operation, value
from leasework.tuning import Tuning


class Summary(Struct, frozen=True):
    """Counts for ``status``, each at most 10,000."""

    stranded: int
    """Running jobs on nodes that do not exist, where no rescuer finds them."""
    waiting: int
    unknown: int
    quarantined: int
    unknown_tasks: Sequence[str]
    quarantined_tasks: Sequence[str] = ()


QUEUE_ROWS = 200


class Reports(JobLists, DurableReports):
    """Read-only queries for people. Every answer is bounded."""

    def __init__(self, pool: Pool, seconds: float | None = None) -> None:
        """``seconds``: how long a list may take that needs several statements."""
        super().__init__(pool)
        self._seconds = pool.call_timeout if seconds is None else seconds

    async def check_schema(self) -> None:
        """Raise SchemaTooOld or SchemaTooNew if this version cannot work with the schema."""
        number, min_known = (await self.pool.fetch(SCHEMA_NUMBERS, {}))[0]
        check_schema(number, min_known)

    @operation("status/summary")
    async def summary(self, now: Now) -> Summary: ...

    @operation("web/job")
    async def job(self, job: UUID, now: Now = None) -> rows.JobDetail | None: ...
    @operation("web/job_events")
    async def job_events(
        self, job: UUID, since: datetime, until: datetime, limit: int
    ) -> list[rows.EventView]: ...
    @operation("job/attempts")
    async def attempts(self, job: UUID, limit: int) -> list[rows.AttemptView]:
        """Return the attempts that did not just complete, the newest first."""

    @operation("stack/get")
    async def stack(self, job: UUID) -> rows.StackView | None:
        """Return the last request of about the last hour."""

    @operation("history/list")
    async def history(
        self, since: datetime, queue: str | None, limit: int
    ) -> list[rows.MinuteView]:
        """Return minutes from ``since``, the oldest first."""

    @operation("web/queues")
    async def queues(
        self, now: Now, most: int = 50_000, limit: int = QUEUE_ROWS
    ) -> list[rows.QueueView]:
        """Return the queues with due jobs, at most ``limit``. It counts at most ``most`` jobs, and
        of each queue as many as of any other. Status, pages and metrics all use these counts."""

    @operation("job/states")
    async def states(
        self, queue: str | None, task: str | None, most: int
    ) -> list[tuple[str, str, int, int]]:
        """Return how many jobs are in each state that is not ready: part of the tables, state, jobs
        of that queue and task, and all that were looked at, at most ``most`` of a part."""

    @operation("web/names")
    async def names(self) -> tuple[list[str], list[str]]:
        """Return the names to suggest: queues and tasks."""

    @operation("status/failures")
    async def failures(
        self, outcome: str, seconds: float, now: Now, limit: int = 2000
    ) -> list[rows.TaskFailures]:
        """Return the tasks with attempts of that outcome, ``discarded`` or ``retryable``, within
        that time. ``limit``: attempts that are counted. Tasks whose discarded jobs are older than
        all these have no error here."""

    @operation("job/failures")
    async def failure_groups(
        self,
        seconds: float,
        limit: int,
        now: Now = None,
        bars: int = Tuning.trend_bars,
        most: int = Tuning.counted_failures,
        distinct: int = Tuning.distinct_failures,
        looked: int = Tuning.looked_failures,
        kinds: int = Tuning.failure_kinds,
    ) -> list[rows.FailureGroup]:
        """Return the failed attempts of the last ``seconds`` by fingerprint, the group with the
        most first."""

    @operation("status/interrupted")
    async def interrupted(self, runs: int, limit: int = 2000) -> list[rows.InterruptedTask]:
        """Return the tasks with unfinished jobs whose last ``runs`` runs a stop interrupted."""

    # only a connection of its own may use the plan that reads job_done by a bitmap scan
    @operation("status/finished", answer=dict, aside=True)
    async def finished(self, since: datetime, most: int = 20_000) -> dict[str, int]:
        """Return the number of jobs per task that finished since then. Counts at most ``most``."""

    @operation("limit/list")
    async def limits(self, now: Now) -> list[LimitView]: ...
    @operation("limit/keys")
    async def limit_keys(self, name: str, limit: int) -> list[LimitKeyView]:
        """Return the keys of a limit: those that a person changed first, then the busiest."""

    @operation("limit/pauses")
    async def pauses(self, now: Now = None) -> list[PauseView]: ...
    @operation("limit/named", answer=value)
    async def is_named(self, kind: str, name: str) -> bool:
        """Return whether a job, a worker or a definition names this ``queue`` or ``task``."""

    @operation("limit/waits")
    async def limit_waits(self, now: Now, most: int = 10_000) -> list[QueueWaits]: ...
    @operation("limit/why")
    async def key_waits(self, job: UUID, now: Now = None) -> list[KeyWait]:
        """Return what a job that waits in a lane waits for; empty if it does not."""

    @operation("node/list")
    async def nodes(self, limit: int) -> list[rows.NodeView]: ...
    @operation("node/died")
    async def died(self, seconds: float, limit: int, now: Now) -> list[rows.DeathView]:
        """Return nodes that died within that time and that no person has seen, the newest first."""

    @operation("node/cut")
    async def cut(self, node: UUID, since: datetime, limit: int = 100) -> list[UUID]:
        """Return the jobs that a stop of this node has interrupted since then."""

    @operation("leader/list")
    async def leaders(self, limit: int) -> list[rows.LeaderView]: ...
    @operation("leader/terms")
    async def terms(self, name: str | None, limit: int) -> list[rows.TermView]: ...
    @operation("web/terms")
    async def terms_since(self, since: datetime, limit: int) -> list[rows.TermView]:
        """Return terms since then and each election's last one before, the newest first."""

    @operation("web/lease_events")
    async def lease_events(self, since: datetime, limit: int) -> list[rows.EventView]: ...
    @operation("lock/list")
    async def locks(self, limit: int) -> list[rows.LockView]:
        """Return leases and advisory locks, held and waited for."""

    @operation("metrics/locks")
    async def lock_counts(self, now: Now) -> rows.LockCounts: ...
    @operation("metrics/leases")
    async def lease_counts(
        self, now: Now, limit: int = Tuning.series
    ) -> list[rows.LeaseCounts]: ...
    @operation("web/waits")
    async def waits(self, limit: int, now: Now = None) -> list[rows.WaitView]: ...

    @operation("schedule/list")
    async def schedules(
        self,
        limit: int,
        *,
        app: str | None = None,
        name: str | None = None,
        prefix: str = "",
        after: str = "",
        after_app: str = "",
        longest: int | None = None,
    ) -> list[rows.StoredSchedule]:
        """Return schedules by application and name, from the first one behind (``after_app``,
        ``after``). ``prefix``: how their names begin. Arguments of more than ``longest`` bytes are
        left out of ``job``."""

    async def get_schedule(self, app: str, name: str) -> rows.StoredSchedule | None:
        return next(iter(await self.schedules(1, app=app, name=name)), None)

    @operation("schedule/ticks")
    async def ticks(self, schedule: str | None, limit: int, now: Now = None) -> list[rows.TickView]:
        """Return the newest entries of the ledger."""

    @operation("web/ticks")
    async def ticks_of(
        self, apps: Sequence[str], names: Sequence[str], each: int, now: Now = None
    ) -> list[rows.TickView]:
        """Return the newest ticks of each schedule: of the first name in the first of ``apps``, and
        so on."""

    @operation("status/schedules")
    async def schedule_lags(self, limit: int, now: Now) -> list[rows.ScheduleLag]:
        """Return how late schedules are, the latest first."""

    @operation("status/failing_schedules")
    async def failing_schedules(
        self, seconds: float, limit: int, now: Now
    ) -> list[rows.FailingSchedule]:
        """Return schedules whose newest job failed for good, and none of whose last five jobs
        completed within that time. Looks at ``limit`` jobs that failed for good."""

    @operation("deadline/list")
    async def deadlines(
        self, state: str | None, name: str | None, limit: int
    ) -> list[rows.DeadlineView]: ...
    @operation("deadline/unhandled")
    async def unhandled_breaches(
        self, days: int, limit: int, now: Now
    ) -> list[rows.UnhandledBreach]:
        """Return recent breaches whose callback failed or cannot run, the newest first."""

    @operation("event/list")
    async def events(
        self, kind: str | None, after: int | None, limit: int
    ) -> list[rows.EventView]: ...
    async def event_page(
        self,
        kind: str | None,
        level: str | None,
        before: int | None,
        limit: int,
        worker: str | None = None,
    ) -> tuple[list[rows.EventView], int | None]:
        """Return the newest events before an id, and the id at which to continue, or None."""
        scan = Tuning.page_event_rows if kind or level or worker else limit + 1
        params = {
            "kind": kind, "level": level, "before": before, "limit": limit + 1, "scan": scan,
            "worker": worker,
        }  # fmt: skip
        seen = await self.pool.fetch("web/events", params)
        looked, last = seen[0][:2]
        found = [rows.EventView(*row[2:]) for row in seen if row[2] is not None]
        if len(found) > limit:
            return found[:limit], found[limit - 1].id
        return found, int(last) if looked >= scan else None

    @operation("event/lately")
    async def lately(
        self, kinds: Sequence[str], seconds: float, limit: int, now: Now
    ) -> list[rows.EventView]:
        """Return events of these kinds of the last ``seconds``, at most ``limit`` of each kind, the
        newest first."""

    @operation("metrics/counts")
    async def counts(self, limit: int = Tuning.series) -> list[rows.CountView]:
        """Return the running totals."""

    @operation("history/parts")
    async def history_parts(
        self, since: datetime, step: float, every: int, queue: str | None, task: str | None
    ) -> list[rows.MinuteView]:
        """Return the history from ``since`` in parts of ``step`` seconds, the oldest first, as if
        each were a minute. Times are those of every so many minutes."""

    @operation("history/usual")
    async def usual(self, tasks: Sequence[str], now: Now) -> list[rows.UsualView]:
        """Return how long these tasks took within the last day, by at most 300 minutes of each."""

    @operation("status/blockers")
    async def blockers(self, now: Now = None) -> list[rows.BlockerView]:
        """Return the sessions that hold a strong lock on a table, or that leasework's sessions
        wait for. Reads no table of leasework."""

    @operation("status/connections")
    async def connections(self) -> list[rows.ConnectionsView]: ...
    @operation("silence/list")
    async def silences(self, now: Now) -> list[rows.SilenceView]: ...

    @operation("status/transactions")
    async def transactions(self, limit: int, now: Now = None) -> list[rows.TransactionView]:
        """Return what blocks vacuum, the oldest snapshot first."""

    @operation("web/session")
    async def session(self, session: str) -> tuple[int, bool, bool]:
        """Return how often all sessions of the dashboard were ended, whether this one was, and
        whether this login of the database may record what people do."""

    @operation("web/tables")
    async def tables(self, now: Now = None) -> list[rows.TableView]: ...
