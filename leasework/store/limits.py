"""Limits, fair queues and pauses: claims of jobs that wait in lanes, and live control."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

from leasework.model.job import ClaimedJob
from leasework.model.moments import duration
from leasework.pg.connection.fast.link import Row
from leasework.store.operation import Now, Operations, operation, value


class Asked(NamedTuple):
    """What a claim of lanes asks for: see ``leasework.claim_limited``."""

    wanted: int
    hints: list[str] | None
    after: str
    visits: int
    phase: float
    cursors: dict[str, str]


class Walk(NamedTuple):
    """What a claim of lanes found."""

    jobs: list[ClaimedJob]
    after: str = ""
    """The lane after which the next claim begins."""
    rest: int = 0
    """What is left of the share of that lane's tenant."""
    passed: int = 0
    """How many lanes are behind it: it claimed what it could of them. More than ``seen``: and of
    lanes in which jobs had ended."""
    seen: int = 0
    """How many lanes the walk looked at."""
    around: bool = True
    """It saw the end of the queue's lanes."""
    opens_in: float | None = None
    """Seconds until the first key opens that has only no tokens now."""
    cursors: dict[str, str] = {}  # noqa: RUF012
    """The last lane that was chosen of each tenant, if ``hints`` was None."""


class LimitView(Struct, frozen=True):
    """A limit, as people see it."""

    name: str
    defined: bool
    """False: jobs name it, and no code has defined it, so they wait for ever."""
    app: str | None
    concurrency: int | None
    rate: float | None
    """In a second."""
    burst: float | None
    set_concurrency: int | None
    """What a person set, until it is reset; and so on."""
    set_rate: float | None
    set_burst: float | None
    paused: bool
    running: int
    waiting: int
    """Both are counted up to 10,000."""
    keys_set: int
    """Keys that a person has changed or paused."""
    keys_closed: int
    """Keys of which nothing starts, because a job was throttled."""
    oldest_seconds: float | None
    """For how long the first of the jobs that wait has been due."""
    set_seconds: float | None
    """Since a person changed it. None: it is as the code says."""


class LimitKeyView(Struct, frozen=True):
    """One key of a limit."""

    key: str
    set_concurrency: int | None
    paused: bool
    closed_until: datetime | None
    running: int
    waiting: int
    oldest: datetime | None
    tokens: float | None


class PauseView(Struct, frozen=True):
    """A paused queue or task."""

    kind: str
    name: str
    since: datetime
    seconds: float
    why: str | None
    """By whom, and the reason."""

    def __str__(self) -> str:
        told = f"The {self.kind} {self.name!r} has been paused for {duration(self.seconds)}"
        return " ".join(filter(None, (told, self.why)))


class QueueWaits(Struct, frozen=True):
    """The jobs of a queue that wait for limits, or for their tenant's share."""

    queue: str
    waiting: int
    oldest_seconds: float | None


class KeyWait(Struct, frozen=True):
    """One of the keys for which a job waits."""

    key: str
    defined: bool
    concurrency: int | None
    running: int
    rate: float | None
    opens_in: float | None
    """Seconds until its bucket has what the job costs."""
    paused: bool
    closed_seconds: float | None
    ahead: int
    """Jobs of the same lane before it, up to 1,000."""
    tenant: str


def _walk(rows: list[Row]) -> Walk:
    jobs = [ClaimedJob._make(row) for row in rows if row[0] is not None]
    if not rows or rows[-1][0] is not None:
        return Walk(jobs)
    end = dict(zip(ClaimedJob._fields, rows[-1], strict=True))
    given = ("lane", "priority", "attempt", "crashes", "history", "start_in")
    return Walk(jobs, *[end[name] for name in given])._replace(cursors=end["payload"] or {})


class LimitStore(Operations):
    @operation("limit/claim", answer=_walk)
    async def claim_limited(
        self,
        node: UUID,
        epoch: int,
        queue: str,
        asked: Asked,
        not_tasks: Sequence[str],
        ahead: float,
    ) -> Walk:
        """Claim jobs of a queue's lanes: see ``leasework.claim_limited``."""

    @operation("limit/throttle")
    async def throttle(self, key: str, seconds: float, now: Now) -> None:
        """Start no job of this key for so many seconds."""

    @operation("limit/open")
    async def open_limits(self, now: Now) -> tuple[float | None, list[str]]:
        """Open the keys whose throttled time is over. Return the seconds until the next one opens,
        and the queues of the jobs that wait for none of those."""

    @operation("limit/sync", answer=value)
    async def sync_limits(
        self,
        app: str,
        limits: list[dict[str, Any]],
        weights: list[dict[str, Any]],
        queues: Sequence[str],
        missing: bool,
        now: Now,
    ) -> int:
        """Write what the code defines; ``missing``: only what has no row. ``queues``: the fair
        ones. Return how many rows changed."""

    @operation("limit/set")
    async def set_limit(
        self,
        name: str,
        key: str | None,
        concurrency: int | None,
        rate: float | None,
        burst: float | None,
        paused: bool | None,
        reset: bool,
        now: Now,
    ) -> str | None:
        """Change a limit or one of its keys until it is ``reset``. None: as it is. Return its name,
        or None if no limit has it."""

    @operation("limit/weight")
    async def set_weight(self, queue: str, tenant: str, weight: float | None) -> None:
        """Set a tenant's weight until it is reset (None)."""

    @operation("limit/pause", answer=value)
    async def pause(self, kind: str, name: str, paused: bool, why: str, now: Now) -> bool:
        """Pause or resume a ``queue`` or a ``task``. Return whether that changed anything."""
