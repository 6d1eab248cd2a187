"""absurd's tables of the queue ``default``."""

from __future__ import annotations

from typing import Any

from bench.sql import one


def unfinished(watcher: Any, dsn: str) -> bool:
    left = "select from absurd.t_default where state in ('pending', 'running', 'sleeping')"
    return bool(one(watcher, f"select exists ({left})"))


def finished(watcher: Any, dsn: str) -> int | None:
    return int(one(watcher, "select count(*) from absurd.t_default where state = 'completed'"))
