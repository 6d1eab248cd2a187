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
