"""Lists of jobs by a filter, in steps, each of which examines a limited number of rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import Struct, structs

from leasework.errors import BadFilter, Unavailable
from leasework.model.filter import JobFilter
from leasework.model.job import JobRecord
from leasework.model.moments import LATEST
from leasework.model.states import FINISHED, WAITING, State
from leasework.store.operation import Operations
from leasework.tuning import Tuning

_LAST = UUID(int=(1 << 128) - 1)
_FIRST = UUID(int=0)
_MOST_NODES = 1000
_LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)
Look = tuple[list[UUID], list[str], str | None, int]
"""Ids, the cursor after each, the cursor after all examined rows (None: no more), their number."""


class JobPage(Struct, frozen=True):
    """One page of jobs. Long values are cut or left out."""

    rows: list[JobRecord]
    more: str | None
    """Where the next page starts, or None if this is the last one."""
    looked_at: int
    """The rows that were read. There are more if ``more`` is set and the page is not full."""


class JobLists(Operations):
    """Lists running jobs oldest first, those that wait for their time by that time, those with a
    fingerprint by the time of their last failure, and all others newest first."""

    _seconds: float
    """How long a list may take that needs several statements."""

    async def jobs(
        self, wanted: JobFilter, limit: int, *, to_the_end: bool = False
    ) -> list[JobRecord]:
        """Return at most ``limit`` jobs that match. ``to_the_end``: search however long it
        takes."""
        found: dict[UUID, None] = {}  # a job that fails again meanwhile may be met twice
        after: str | None = None
        began = self.pool.now()
        while True:
            ids, after = await self.matching(wanted, after, limit - len(found))
            found.update(dict.fromkeys(ids))
            if after is None or len(found) >= limit:
                break
            if self.pool.now() - began > self._seconds and not to_the_end:
                raise Unavailable(
                    f"the list was not complete after {self._seconds:g} s",
                    do="Narrow it, for example by a state. `leasework jobs --all` searches to the "
                    "end, and LEASEWORK_CALL_TIMEOUT is the limit of other calls",
                )
        rows = await self.pool.fetch("job/records", {"ids": list(found)})
        by_id = {row[0]: JobRecord(*row) for row in rows}
        # a job may have gone on since its id was found
        records = [by_id[i] for i in found if i in by_id]
        return [job for job in records if wanted.state in (None, job.state)]

    async def job_page(self, wanted: JobFilter, after: str | None, limit: int) -> JobPage:
        """Return a page in one step; one that goes on from another may take several, until it is
        full or some time is over."""
        scan = _scan(wanted, limit + 1, Tuning.page_rows)
        ends_at = self.pool.now() + (Tuning.search_seconds if after else 0.0)
        found: list[UUID] = []
        looked, more = 0, True
        while more:
            room = limit - len(found)
            ids, cursors, end, count = await self._look(wanted, after, room + 1, scan)
            found += ids[:room]
            looked += count
            after = cursors[room - 1] if len(ids) > room else end
            more = bool(after) and len(found) < limit and self.pool.now() < ends_at
        rows = await self.pool.fetch("web/jobs_shown", {"ids": found})
        by_id = {row[0]: JobRecord(*row) for row in rows}  # a job that has moved may be missing
        return JobPage([by_id[i] for i in found if i in by_id], after, looked)

    async def matching(
        self, wanted: JobFilter, after: str | None, most: int
    ) -> tuple[list[UUID], str | None]:
        """Return at most ``most`` ids that a filter matches, found among a limited number of jobs,
        and where to continue (None: this is the end)."""
        scan = _scan(wanted, most, Tuning.step_rows)
        ids, cursors, end, _ = await self._look(wanted, after, most, scan)
        return ids, cursors[-1] if len(ids) == most else end

    async def _look(self, wanted: JobFilter, after: str | None, limit: int, scan: int) -> Look:
        now = await self.database_now(None) if wanted.is_relative else None
        params: dict[str, Any] = {
            **wanted.params(now),
            "nodes": await self._nodes_named(wanted.node),
            "limit": limit,
            "scan": scan,
        }
        if wanted.batch is not None:  # its ids stand close together
            first, last = (await self.pool.fetch("batch/span", {"batch": wanted.batch}))[0]
            if first is None:
                return [], [], None, 0
            params |= {"first": max(first, wanted.first), "last": min(last, wanted.last)}
        params["waiting"] = wanted.state not in FINISHED
        params["finished"] = wanted.state not in WAITING and not wanted.unfinished
        if wanted.fingerprint is not None:
            at, last = _place(after, LATEST, _LAST)
            return await self._by_time("web/jobs_failed", params, before_at=at, before=last)
        if wanted.state == State.RUNNING:
            return await self._running(params, after)
        if wanted.state in (State.SCHEDULED, State.RETRYABLE):
            at, last = _place(after, _LONG_AGO, _FIRST)
            return await self._by_time("web/jobs_waiting", params, due=at, after=last)
        params["before"] = _uuid(after) if after else _LAST
        if wanted.state in FINISHED - {State.COMPLETED}:
            rows = await self.pool.fetch("web/jobs_bad", params)
        else:
            rows = await self.pool.fetch("web/jobs_newest", params)
        looked, last, ids = rows[0]
        end = str(last) if looked >= scan and last is not None else None
        return ids, [str(i) for i in ids], end, looked

    async def _running(self, params: dict[str, Any], after: str | None) -> Look:
        params.update(after=_uuid(after) if after else _FIRST, scan=Tuning.running_rows)
        cut, looked, ids = (await self.pool.fetch("web/jobs_running", params))[0]
        if cut:
            raise BadFilter(
                f"{Tuning.running_rows:,} available jobs or more stand before the running ones",
                do="Filter by a queue that has fewer, or look again later",
            )
        return ids, [str(i) for i in ids], None, looked

    async def _by_time(self, statement: str, params: dict[str, Any], **place: Any) -> Look:
        rows = await self.pool.fetch(statement, {**params, **place})
        looked, last_time, last_id, ids, times = rows[0]
        end = f"{last_time.isoformat()}|{last_id}" if looked >= params["scan"] else None
        cursors = [f"{at.isoformat()}|{i}" for at, i in zip(times, ids, strict=True)]
        return ids, cursors, end, looked

    async def _nodes_named(self, name: str | None) -> list[UUID] | None:
        if name is None:
            return None
        rows = await self.pool.fetch("web/nodes_named", {"name": name, "limit": _MOST_NODES + 1})
        if len(rows) > _MOST_NODES:
            raise BadFilter(
                f"more than {_MOST_NODES:,} nodes, live and dead, have names that begin like this",
                got=name,
                do="Give more of the name",
            )
        return [row[0] for row in rows]


def _scan(wanted: JobFilter, limit: int, usual: int) -> int:
    """Return how many rows a statement examines."""
    if structs.replace(wanted, first=_FIRST, last=_LAST) == JobFilter():
        return limit  # each examined job matches
    bad = wanted.state in FINISHED - {State.COMPLETED} or wanted.fingerprint is not None
    return Tuning.page_bad_rows if bad else usual


def _place(after: str | None, time: datetime, last: UUID) -> tuple[datetime, UUID]:
    """Read a position in a list that is ordered by a time, or return where it begins."""
    if not after:
        return time, last
    at, _, job = after.partition("|")
    try:
        return datetime.fromisoformat(at).astimezone(UTC), UUID(job)
    except (ValueError, OverflowError):
        raise BadFilter("this is not a position in the list", got=after) from None


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise BadFilter("this is not a position in the list", got=text) from None
