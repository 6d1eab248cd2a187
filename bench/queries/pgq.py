"""pgqueuer's tables."""

from __future__ import annotations

from typing import Any

from bench.sql import one


def unfinished(watcher: Any, dsn: str) -> bool:
    return bool(one(watcher, "select exists (select from pgqueuer)"))


def finished(watcher: Any, dsn: str) -> int | None:
    return int(one(watcher, "select count(*) from pgqueuer_log where status = 'successful'"))


_FILL = """
with new as (
    insert into pgqueuer (priority, entrypoint, payload, status)
    select 0, 'noop', convert_to(json_build_object('n', n, 'text', repeat('x', 80))::text, 'UTF8'),
           'queued'
    from generate_series(0, %s - 1) n returning id, entrypoint, priority
)
insert into pgqueuer_log (job_id, status, entrypoint, priority)
select id, 'queued', entrypoint, priority from new
"""


def fill_ready(watcher: Any, rows: int) -> None:
    watcher.execute(_FILL, [rows])


def wake(watcher: Any) -> None:
    """Its trigger does."""
