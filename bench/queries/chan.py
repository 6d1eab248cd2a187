"""chancy's tables."""

from __future__ import annotations

from typing import Any

from bench.sql import one


def unfinished(watcher: Any, dsn: str) -> bool:
    return bool(one(watcher, "select exists (select from chancy_jobs where state <> 'succeeded')"))


def finished(watcher: Any, dsn: str) -> int | None:
    return int(one(watcher, "select count(*) from chancy_jobs where state = 'succeeded'"))
