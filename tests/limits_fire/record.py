"""The record: triggers that note each change of a job and of a limit, and when it was committed.

They count nothing, and call no function of limits. What they say is judged afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

SETUP = Path(__file__).with_name("record.sql").read_text()

_EPOCH = "extract(epoch from {})::float8"
EVENTS = f"""
select n, {_EPOCH.format("at")}, {_EPOCH.format("pg_xact_commit_timestamp(xmin)")}, kind,
       job::text, queue, lane, costs, level, seat, attempt, crashes, token, node::text,
       {_EPOCH.format("claimed_at")}
from fire.event order by n
"""
SETTINGS = f"""
select {_EPOCH.format("pg_xact_commit_timestamp(xmin)")}, kind, name, concurrency, rate, burst,
       coalesce(paused, false), coalesce({_EPOCH.format("closed_until")}, 0)
from fire.setting order by 1
"""


@dataclass(slots=True)
class Event:
    """One change of a job. ``at``: when it was made; ``done``: when it was committed."""

    n: int
    at: float
    done: float
    kind: str
    job: str
    queue: str
    lane: str | None
    costs: list[float] | None
    level: int
    seat: int
    attempt: int
    crashes: int
    token: int | None
    node: str | None
    claimed_at: float

    @property
    def keys(self) -> list[str]:
        return keys_of(self.lane)

    def cost_of(self, key: str) -> float:
        return cost_of(self.lane, self.costs, key)


@dataclass(slots=True)
class Setting:
    done: float
    kind: str
    name: str
    concurrency: int | None
    rate: float | None
    burst: float | None
    paused: bool
    closed_until: float


def keys_of(lane: str | None) -> list[str]:
    return [key for key in lane.split("|")[1:] if key] if lane else []


def cost_of(lane: str | None, costs: list[float] | None, key: str) -> float:
    at = keys_of(lane).index(key)
    return 1.0 if not costs or costs[at] is None else costs[at]


def read_events(connection: psycopg.Connection[Any]) -> list[Event]:
    return [Event(*row) for row in connection.execute(EVENTS.encode())]


class Settings:
    """What was in force, and when."""

    def __init__(self, found: list[Setting]) -> None:
        self._by: dict[tuple[str, str], list[Setting]] = {}
        for each in found:
            self._by.setdefault((each.kind, each.name), []).append(each)

    @classmethod
    def read(cls, connection: psycopg.Connection[Any]) -> Settings:
        return cls([Setting(*row) for row in connection.execute(SETTINGS.encode())])

    def during(self, kind: str, name: str, since: float, until: float) -> list[Setting]:
        """All that were in force at some moment of that time."""
        rows = self._by.get((kind, name), [])
        before = [row for row in rows if row.done <= since]
        return before[-1:] + [row for row in rows if since < row.done <= until]

    def most(self, key: str, since: float, until: float) -> float:
        """The most jobs of the key that might run at some moment of that time."""
        limits = self.during("limit", key.partition(":")[0], since, until)
        keys: list[Setting | None] = [*self.during("key", key, since, until)]
        rows = self._by.get(("key", key), [])
        if not rows or rows[0].done > since:
            keys.append(None)
        most = 0.0
        for limit in limits:
            for own in keys:
                if limit.paused or (own and own.paused):
                    continue
                number = own.concurrency if own and own.concurrency else limit.concurrency
                most = max(most, float("inf") if number is None else number)
        return most

    def rates(self, key: str, since: float, until: float) -> tuple[float, float] | None:
        """The highest rate and burst of that time. None: it has no rate."""
        found = self.during("limit", key.partition(":")[0], since, until)
        rates = [(row.rate, row.burst or 0.0) for row in found if row.rate is not None]
        if not rates:
            return None
        return max(rate for rate, _ in rates), max(burst for _, burst in rates)

    def closed(self, key: str, at: float) -> float:
        """Until when it was closed, as of that moment."""
        found = self.during("key", key, at, at)
        return found[-1].closed_until if found else 0.0

    def queue_paused(self, queue: str, since: float, until: float) -> bool:
        """All the time."""
        found = self.during("queue", queue, since, until)
        rows = self._by.get(("queue", queue), [])
        return bool(found) and rows[0].done <= since and all(row.paused for row in found)
