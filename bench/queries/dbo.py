"""DBOS's tables."""

from __future__ import annotations

from typing import Any

from bench.sql import one

_UNFINISHED = "status in ('ENQUEUED', 'PENDING', 'DELAYED')"


def unfinished(watcher: Any, dsn: str) -> bool:
    return bool(
        one(watcher, f"select exists (select from dbos.workflow_status where {_UNFINISHED})")
    )


def finished(watcher: Any, dsn: str) -> int | None:
    return int(one(watcher, "select count(*) from dbos.workflow_status where status = 'SUCCESS'"))


def attempts(watcher: Any) -> dict[int, int]:
    """Job → attempts that are recorded, of jobs with a limit."""
    return dict(
        watcher.execute(
            "select workflow_uuid::int, recovery_attempts::int from dbos.workflow_status"
            " where name = 'limited'"
        ).fetchall()
    )
