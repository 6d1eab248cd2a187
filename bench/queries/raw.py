"""The reference's table."""

from __future__ import annotations

from typing import Any

from bench.sql import one


def unfinished(watcher: Any, dsn: str) -> bool:
    return bool(one(watcher, "select exists (select from job where state <> 'done')"))


def newest(watcher: Any) -> Any:
    return one(watcher, "select coalesce(max(id), 0) from job")


def unfinished_since(watcher: Any, newest: Any) -> bool:
    query = "select id from job where id > %s and state <> 'done' order by id limit 1"
    return bool(one(watcher, f"select ({query}) is not null", newest))


def finished(watcher: Any, dsn: str) -> int | None:
    return int(one(watcher, "select count(*) from job where state = 'done' and attempts = 1"))


_FILL = """
insert into job (queue, payload, run_at)
select 'default', jsonb_build_object('n', n, 'text', repeat('x', 80)), {run_at}
from generate_series(0, %s - 1) n
"""


def fill_ready(watcher: Any, rows: int) -> None:
    watcher.execute(_FILL.format(run_at="now()"), [rows])


def wake(watcher: Any) -> None:
    watcher.execute("select pg_notify('job', '')")


def fill_waiting(watcher: Any, rows: int) -> None:
    watcher.execute(_FILL.format(run_at="now() + interval '1 day' + n * interval '1 ms'"), [rows])


def ready_left(watcher: Any) -> bool:
    query = "select exists (select from job where state <> 'done' and run_at <= now())"
    return bool(one(watcher, query))


def settle(watcher: Any) -> None:
    """It does not look for the jobs of the dead."""
