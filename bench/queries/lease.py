"""leasehold's tables."""

from __future__ import annotations

from typing import Any

from bench.sql import one


def unfinished(watcher: Any, dsn: str) -> bool:
    return bool(one(watcher, "select exists (select from leasehold.job)"))


def finished(watcher: Any, dsn: str) -> int | None:
    return int(
        one(
            watcher,
            "select count(*) from leasehold.job_done where state = 'completed' and attempt = 1",
        )
    )


_FILL = """
insert into leasehold.job (id, queue, task_name, payload, ready, held_because, run_at)
select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'default', 'noop',
       jsonb_build_object('n', n, 'text', repeat('x', 80)), {ready}, {why}, {run_at}
from generate_series(0, %s - 1) n
"""


def fill_ready(watcher: Any, rows: int) -> None:
    watcher.execute(_FILL.format(ready="true", why="null", run_at="now()"), [rows])


def fill_waiting(watcher: Any, rows: int) -> None:
    later = "now() + interval '1 day' + n * interval '1 ms'"
    watcher.execute(_FILL.format(ready="false", why="'scheduled'", run_at=later), [rows])


def ready_left(watcher: Any) -> bool:
    return bool(one(watcher, "select exists (select from leasehold.job where ready)"))
