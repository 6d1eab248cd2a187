"""Reports on PostgreSQL: read-only, in bounded statements, over their own connections."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from leasehold.config import ON_DEMAND_SECONDS, Settings
from leasehold.model.filter import JobFilter
from leasehold.model.job import JobRecord
from leasehold.pg.stores.execution import PgOperations
from leasehold.pg.stores.listing import Listing
from leasehold.pg.stores.store import PgStore
from leasehold.ports import EventView, JobPage, Reports
from leasehold.tuning import Tuning


class PgReports(PgOperations, Reports):
    """Belongs to one event loop. Uses at most ``connections``, which ``store`` shares."""

    def __init__(self, settings: Settings, connections: int = 2) -> None:
        limited = replace(
            settings, call_timeout=min(settings.call_timeout, Tuning.page_call_seconds)
        )
        self.store = PgStore(limited, "web", connections, ON_DEMAND_SECONDS)
        self._pool = self.store.pool
        self._listing = Listing(self._pool)

    async def close(self) -> None:
        await self.store.close()

    async def job_page(self, wanted: JobFilter, after: str | None, limit: int) -> JobPage:
        ids, more, looked = await self._listing.page(wanted, after, limit)
        rows = await self._pool.fetch("web/jobs_shown", {"ids": ids})
        by_id = {row[0]: JobRecord(*row) for row in rows}  # a job that has moved may be missing
        return JobPage([by_id[i] for i in ids if i in by_id], more, looked)

    async def matching(
        self, wanted: JobFilter, after: str | None, most: int
    ) -> tuple[list[UUID], str | None]:
        return await self._listing.step(wanted, after, most)

    async def events(
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
