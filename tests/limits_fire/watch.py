"""Looks at the database again and again, in one statement each time, and counts by its own means:
what runs of each key (F1), and how long a job waits that might run (F3)."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.limits_fire.faults import QUEUES, Fire
from tests.limits_fire.record import cost_of, keys_of

START_SECONDS = 1.0
EVERY_SECONDS = 0.02
HEARD_SECONDS = 3.0
"""A worker knows by then that a task was resumed."""
LOOK = Path(__file__).with_name("look.sql").read_text()


@dataclass
class Bucket:
    """What may have been taken from a bucket so far, so that more would be there by now."""

    tokens: float
    at: float

    def now(self, at: float, rate: float, burst: float) -> float:
        return min(burst, self.tokens + max(0.0, at - self.at) * rate)


@dataclass
class Idle:
    """A job that might run, since when, and the workers that had a free slot all that time."""

    since: float
    workers: set[str]
    last: float
    gap: float = 0.0


@dataclass
class Job:
    id: str
    queue: str
    lane: str | None
    level: int
    seat: int
    costs: list[float] | None
    node: str | None
    task: str
    claimed_at: float | None


@dataclass
class Watch:
    fire: Fire
    looks: int = 0
    keys_counted: int = 0
    full: int = 0
    """Counts of a key that was at its limit: only these can show a violation."""
    over: list[str] = field(default_factory=list)
    waits: int = 0
    longest: float = 0.0
    late: list[str] = field(default_factory=list)
    longest_gap: float = 0.0
    _n: int = 0
    _buckets: dict[str, Bucket] = field(default_factory=dict)
    _in_force: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _idle: dict[tuple[str, str], Idle] = field(default_factory=dict)
    _resumed: dict[str, float] = field(default_factory=dict)
    """Tasks that were paused, and when the workers know that they are not."""
    _at: float = 0.0
    stopping: bool = False

    async def run(self) -> None:
        async with await psycopg.AsyncConnection.connect(
            self.fire.dsn, autocommit=True, application_name="fire watch"
        ) as connection:
            await connection.execute("set jit = off")
            while not self.stopping:
                rows = await connection.execute(LOOK.encode(), [self._n])
                [[found]] = await rows.fetchall()
                self._take(*[each or [] for each in found])
                await asyncio.sleep(EVERY_SECONDS)

    def _take(
        self, at: Any, jobs: Any, nodes: Any, limits: Any, keys: Any, pauses: Any, claims: Any
    ) -> None:
        self.looks += 1
        gap = at - self._at if self._at else 0.0
        self._at = at
        self.longest_gap = max(self.longest_gap, gap)
        rows = [Job(*row) for row in jobs]
        for n, lane, costs, claimed_at in claims:
            self._n = max(self._n, n)
            self._charge(lane, costs, claimed_at, limits)
        in_force = self._limits(at, limits, keys, {k for row in rows for k in keys_of(row.lane)})
        running: dict[str, list[Job]] = defaultdict(list)
        for row in rows:
            if row.node:
                for key in keys_of(row.lane):
                    running[key].append(row)
        self._count(at, running)
        self._waiting(at, gap, rows, running, in_force, nodes, limits, keys, pauses)

    def _limits(self, at: float, limits: Any, keys: Any, used: set[str]) -> dict[str, float]:
        by_name = {row[0]: row[1] for row in limits}
        own = {row[0]: row for row in keys}
        now: dict[str, float] = {}
        for key in used:
            number = by_name.get(key.partition(":")[0], 0)
            mine = own.get(key)
            if mine and number != 0 and mine[1]:
                number = mine[1]
            if mine and mine[2]:
                number = 0
            now[key] = float("inf") if number is None else number
            past = self._in_force.setdefault(key, [])
            if not past or past[-1][1] != now[key]:
                past.append((at, now[key]))
        return now

    def _allowed(self, key: str, since: float) -> float:
        """The highest limit since then: what runs may finish when a limit is lowered."""
        past = self._in_force[key]
        first = max([i for i, (at, _) in enumerate(past) if at <= since - 0.1], default=0)
        return max(limit for _, limit in past[first:])

    def _count(self, at: float, running: dict[str, list[Job]]) -> None:
        for key, jobs in running.items():
            self.keys_counted += 1
            oldest = min(job.claimed_at or at for job in jobs)
            allowed = self._allowed(key, oldest)
            self.full += len(jobs) >= allowed
            if len(jobs) > allowed:
                self.over.append(f"{len(jobs)} jobs of {key} run at {at:.3f}, allowed: {allowed:g}")

    def _charge(self, lane: str, costs: Any, claimed_at: float, limits: Any) -> None:
        for name, _, rate, burst in limits:
            for key in keys_of(lane):
                if rate is None or key.partition(":")[0] != name:
                    continue
                bucket = self._buckets.setdefault(key, Bucket(burst, claimed_at))
                left = bucket.now(claimed_at, rate, burst) - cost_of(lane, costs, key)
                self._buckets[key] = Bucket(left, max(claimed_at, bucket.at))

    def _waiting(
        self, at: float, gap: float, rows: list[Job], running: dict[str, list[Job]],
        in_force: dict[str, float], nodes: Any, limits: Any, keys: Any, pauses: Any,
    ) -> None:  # fmt: skip
        idle = self._idle_workers(at, rows, nodes)
        rates = {row[0]: (row[2], row[3]) for row in limits if row[2] is not None}
        closed = {row[0] for row in keys if row[3] and row[3] > at}
        locked = {
            job
            for touched in self.fire.tally.touched[-60:]
            if touched.until > at - 0.05
            for job in touched.jobs
        }
        for kind, name in pauses:
            if kind == "task":
                self._resumed[name] = at + HEARD_SECONDS
        heads: dict[tuple[str, str], Job] = {}
        for row in rows:
            if self._resumed.get(row.task, 0.0) > at:
                continue
            if row.node is None and row.lane is not None and row.id not in locked:
                heads.setdefault((row.queue, row.lane), row)

        def has_room(job: Job) -> bool:
            for key in keys_of(job.lane):
                if key in closed or len(running.get(key, ())) >= in_force[key]:
                    return False
                if rate := rates.get(key.partition(":")[0]):
                    bucket = self._buckets.get(key, Bucket(rate[1], at))
                    need = max(1.0, cost_of(job.lane, job.costs, key))
                    if need > rate[1] or bucket.now(at, *rate) < need:
                        return False
            return True

        might = {
            (job.id, lane): idle[queue]
            for (queue, lane), job in heads.items()
            if ["queue", queue] not in pauses and idle.get(queue) and has_room(job)
        }
        self._follow(at, gap, might)

    def _idle_workers(self, at: float, rows: list[Job], nodes: Any) -> dict[str, set[str]]:
        able = self.fire.able(time.time())
        held: dict[tuple[str, str], int] = defaultdict(int)
        for row in rows:
            if row.node:
                held[row.node, row.queue] += 1
        return {
            queue: {
                node
                for node, pid, started, slots in nodes
                if pid in able and started < at - 1.5 and held[node, queue] < slots[queue]
            }
            for queue in QUEUES
        }

    def _follow(self, at: float, gap: float, might: dict[tuple[str, str], set[str]]) -> None:
        for gone in self._idle.keys() - might.keys():
            # it has started, or cannot any more
            self._end(gone, self._idle.pop(gone))
        for each, workers in might.items():
            known = self._idle.get(each)
            if known is None or not known.workers & workers:
                if known:
                    self._end(each, known)
                self._idle[each] = Idle(at, set(workers), at)
                continue
            known.workers &= workers
            known.last = at
            known.gap = max(known.gap, gap)
            waited = at - known.since
            if waited > START_SECONDS + 3 * known.gap:
                job, lane = each
                self.late.append(
                    f"{job} of lane {lane} could run for {waited:.2f} s until {at:.3f} (looks up "
                    f"to {known.gap:.2f} s apart), and {len(known.workers)} workers had a slot"
                )
                known.since = at

    def _end(self, each: tuple[str, str], waited: Idle) -> None:
        self.waits += 1
        self.longest = max(self.longest, waited.last - waited.since)


def ledger_of(fire: Fire) -> list[dict[str, Any]]:
    return [json.loads(line) for line in fire.ledger.read_text().splitlines()]
