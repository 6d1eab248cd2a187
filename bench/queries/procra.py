"""procrastinate's tables."""

from __future__ import annotations

from typing import Any

from bench.sql import one


def unfinished(watcher: Any, dsn: str) -> bool:
    return bool(
        one(
            watcher,
            "select exists (select from procrastinate_jobs where status in ('todo', 'doing'))",
        )
    )


def finished(watcher: Any, dsn: str) -> int | None:
    return int(one(watcher, "select count(*) from procrastinate_jobs where status = 'succeeded'"))


def attempts(watcher: Any) -> dict[int, int]:
    """Job → attempts that are recorded, of jobs with a limit."""
    return dict(
        watcher.execute(
            "select (args->>'n')::int, attempts from procrastinate_jobs where task_name = 'limited'"
        ).fetchall()
    )
