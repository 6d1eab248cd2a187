"""Reports on PostgreSQL: read-only, bounded, over their own connections."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import structs

from leasehold.config import ON_DEMAND_SECONDS, Settings
from leasehold.errors import BadFilter
from leasehold.model.filter import JobFilter
from leasehold.model.job import JobRecord
from leasehold.model.states import FINISHED, WAITING, State
from leasehold.pg.stores.execution import PgOperations
from leasehold.pg.stores.store import PgStore
from leasehold.ports import EventView, JobPage, Reports
from leasehold.tuning import Tuning

_LAST = UUID(int=(1 << 128) - 1)
_FIRST = UUID(int=0)
_LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)
Look = tuple[list[UUID], list[str], str | None, int]
"""Ids, the cursor after each, the cursor after all examined rows (None: no more), their number."""


class PgReports(PgOperations, Reports):
    """Belongs to one event loop. Uses at most ``connections``, which ``store`` shares."""

    def __init__(self, settings: Settings, connections: int = 2) -> None:
        limited = replace(
            settings, call_timeout=min(settings.call_timeout, Tuning.page_call_seconds)
        )
        self.store = PgStore(limited, "web", connections, ON_DEMAND_SECONDS)
        self._pool = self.store.pool

    async def close(self) -> None:
        await self.store.close()

    async def job_page(self, wanted: JobFilter, after: str | None, limit: int) -> JobPage:
        scan = _scan(wanted) if _narrow(wanted) else limit + 1
        ids, cursors, end, looked = await self._look(wanted, after, limit + 1, scan)
        more = cursors[limit - 1] if len(ids) > limit else end
        rows = await self._pool.fetch("web/jobs_shown", {"ids": ids[:limit]})
        by_id = {row[0]: JobRecord(*row) for row in rows}  # a job that has moved may be missing
        return JobPage([by_id[i] for i in ids[:limit] if i in by_id], more, looked)

    async def matching(
        self, wanted: JobFilter, most: int, *, far: bool = False
    ) -> tuple[list[UUID], bool]:
        found: list[UUID] = []
        after: str | None = None
        looked = 0
        while True:
            left = most - len(found)
            scan = max(_scan(wanted), left + 1) if far else 2 * _scan(wanted)
            ids, _, after, seen = await self._look(wanted, after, left + 1, scan)
            found, looked = found + ids, looked + seen
            if len(found) > most:
                return found[:most], True
            if after is None or not far or looked >= Tuning.bulk_rows:
                return found, after is not None

    async def _look(self, wanted: JobFilter, after: str | None, limit: int, scan: int) -> Look:
        params: dict[str, Any] = {
            **wanted.params(),
            "nodes": await self._nodes_named(wanted.node),
            "limit": limit,
            "scan": scan,
        }
        if wanted.state == State.RUNNING:
            return await self._running(params, after)
        if wanted.state in (State.SCHEDULED, State.RETRYABLE):
            return await self._waiting(params, after)
        params["before"] = _uuid(after) if after else _LAST
        if wanted.state in FINISHED - {State.COMPLETED}:
            rows = await self._pool.fetch("web/jobs_bad", params)
        else:
            params["waiting"] = wanted.state not in FINISHED
            params["finished"] = wanted.state not in WAITING and not wanted.unfinished
            rows = await self._pool.fetch("web/jobs_newest", params)
        looked, last, ids = rows[0]
        end = str(last) if looked >= scan and last is not None else None
        return ids, [str(i) for i in ids], end, looked

    async def _running(self, params: dict[str, Any], after: str | None) -> Look:
        params.update(after=_uuid(after) if after else _FIRST, scan=Tuning.page_head_rows)
        looked, _, ids = (await self._pool.fetch("web/jobs_running", params))[0]
        return ids, [str(i) for i in ids], None, looked

    async def _waiting(self, params: dict[str, Any], after: str | None) -> Look:
        due, _, last = (after or "").partition("|")
        params.update(due=_moment(due) if due else _LONG_AGO, after=_uuid(last) if last else _FIRST)
        rows = await self._pool.fetch("web/jobs_waiting", params)
        looked, last_due, last_id, ids, dues = rows[0]
        end = f"{last_due.isoformat()}|{last_id}" if looked >= params["scan"] else None
        cursors = [f"{d.isoformat()}|{i}" for d, i in zip(dues, ids, strict=True)]
        return ids, cursors, end, looked

    async def _nodes_named(self, name: str | None) -> list[UUID] | None:
        if name is None:
            return None
        return [row[0] for row in await self._pool.fetch("web/nodes_named", {"name": name})]

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


def _narrow(wanted: JobFilter) -> bool:
    """Return whether the filter can exclude an examined job."""
    return structs.replace(wanted, first=_FIRST, last=_LAST) != JobFilter()


def _scan(wanted: JobFilter) -> int:
    return (
        Tuning.page_bad_rows if wanted.state in FINISHED - {State.COMPLETED} else Tuning.page_rows
    )


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise BadFilter("this is not a position in the list", got=text) from None


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadFilter("this is not a position in the list", got=text) from None
