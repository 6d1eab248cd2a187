"""Reports on PostgreSQL: read-only, in bounded statements."""

from __future__ import annotations

from uuid import UUID

from leasework.errors import Unavailable
from leasework.model.filter import JobFilter
from leasework.model.job import JobRecord
from leasework.pg.connection.pool import Pool, check_numbers
from leasework.pg.connection.session import SCHEMA_NUMBERS
from leasework.store.execution import PgOperations
from leasework.store.listing import Listing
from leasework.store.reports import JobPage, Reports
from leasework.store.rows import EventView
from leasework.tuning import Tuning


class PgReports(PgOperations, Reports):
    def __init__(self, pool: Pool, seconds: float | None = None) -> None:
        """``seconds``: how long a list may take that needs several statements."""
        self._pool = pool
        self._seconds = pool.call_timeout if seconds is None else seconds
        self._listing = Listing(pool)

    async def check_schema(self) -> None:
        number, min_known = (await self._pool.fetch(SCHEMA_NUMBERS, {}))[0]
        check_numbers(number, min_known)

    async def jobs(self, wanted: JobFilter, limit: int) -> list[JobRecord]:
        found: dict[UUID, None] = {}  # a job that fails again meanwhile may be met twice
        after: str | None = None
        began = self._pool.now()
        while True:
            ids, after = await self._listing.step(wanted, after, limit - len(found))
            found.update(dict.fromkeys(ids))
            if after is None or len(found) >= limit:
                break
            if self._pool.now() - began > self._seconds:
                raise Unavailable(
                    f"the list was not complete after {self._seconds:g} s",
                    do="Narrow it, for example by a state, or raise LEASEWORK_CALL_TIMEOUT",
                )
        rows = await self._pool.fetch("job/records", {"ids": list(found)})
        by_id = {row[0]: JobRecord(*row) for row in rows}
        # a job may have gone on since its id was found
        records = [by_id[i] for i in found if i in by_id]
        return [job for job in records if wanted.state in (None, job.state)]

    async def job_page(self, wanted: JobFilter, after: str | None, limit: int) -> JobPage:
        ids, more, looked = await self._listing.page(wanted, after, limit)
        rows = await self._pool.fetch("web/jobs_shown", {"ids": ids})
        by_id = {row[0]: JobRecord(*row) for row in rows}  # a job that has moved may be missing
        return JobPage([by_id[i] for i in ids if i in by_id], more, looked)

    async def matching(
        self, wanted: JobFilter, after: str | None, most: int
    ) -> tuple[list[UUID], str | None]:
        return await self._listing.step(wanted, after, most)

    async def event_page(
        self, kind: str | None, level: str | None, before: int | None, limit: int
    ) -> tuple[list[EventView], int | None]:
        scan = Tuning.page_event_rows if kind or level else limit + 1
        params = {
            "kind": kind, "level": level, "before": before, "limit": limit + 1, "scan": scan,
        }  # fmt: skip
        rows = await self._pool.fetch("web/events", params)
        looked, last = rows[0][:2]
        found = [EventView(*row[2:]) for row in rows if row[2] is not None]
        if len(found) > limit:
            return found[:limit], found[limit - 1].id
        return found, int(last) if looked >= scan else None
