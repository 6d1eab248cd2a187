"""Schedules are put, changed and deleted while they fire. Their leader is killed during the puts,
and again during the changes. The ledger of each schedule must be exact."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from leasework import App
from tests.e2e.fault_apps.scene import Scene, batch, together
from tests.support.procs import Process
from tests.support.wait import until

__all__ = ["batch"]
pytestmark = pytest.mark.timeout(1800)
LONG = os.environ.get("LEASEWORK_LONG") == "1"
SCHEDULES, SECONDS = (10_000, 20) if LONG else (120, 1)
STEP = timedelta(seconds=SECONDS)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
TICKS = """
select schedule, fire_at, state, job_id, decided_at, pg_xact_commit_timestamp(xmin)
from leasework.tick order by schedule, fire_at
"""
JOBS = """
select id, schedule, tick_at from leasework.job union all
select id, schedule, tick_at from leasework.job_done
"""


@dataclass
class Call:
    """A put, a change or a delete: when it began, and when it was acknowledged. The server has the
    same clock. From then on the schedule has the moments ``anchor`` + k ``step``."""

    began: datetime
    acknowledged: datetime
    step: timedelta | None = None
    """None: it has none."""
    anchor: datetime = BEGIN

    def moments(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Those after the one and not after the other."""
        if self.step:
            moment = self.anchor + ((after - self.anchor) // self.step + 1) * self.step
            while moment <= until:
                yield moment
                moment += self.step


@dataclass
class Life:
    """All acknowledged calls for one schedule, and its ledger."""

    calls: list[Call] = field(default_factory=list)
    ticks: list[datetime] = field(default_factory=list)

    def check(self, decided: list[datetime]) -> int:
        """``decided``: all moments before these were decided, when the schedule lived. Returns the
        number of moments that were due, but not decided yet, when it was deleted."""
        may, must = set(), set()
        for call, following in pairwise(self.calls):
            may |= set(call.moments(call.began, following.acknowledged))
            must |= set(call.moments(call.acknowledged, following.began))
        assert set(self.ticks) <= may, sorted(set(self.ticks) - may)
        missing = must - set(self.ticks)
        if missing:
            alive = [at for at in decided if at < self.calls[-1].began]
            assert min(missing) > max(self.ticks), (missing, self)
            assert min(missing) >= max(alive), (missing, alive, self)
        return len(missing)


class Story:
    """The application that changes the schedules, and the workers that fire them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.app = App(scene.dsn)
        self.app.task(name="quick")(lambda: None)
        self.stored = self.app.sync.schedules
        self.lives = {f"s{n:05}": Life() for n in range(SCHEDULES)}
        self.workers: list[Process] = []
        for _ in range(2):
            self.start()
        scene.wait_for_leader(*self.workers)

    def start(self) -> None:
        name = f"worker{len(self.workers)}"
        self.workers.append(self.scene.worker(name, slots=20, wait=not self.workers))

    def kill_leader(self) -> None:
        """Another worker is started at once."""
        leader = self.scene.wait_for_leader(*[w for w in self.workers if w.running])
        leader.kill()
        self.start()

    def _record(self, name: str, call: Callable[[], None], *given: Any) -> None:
        began = datetime.now(UTC)
        call()
        self.lives[name].calls.append(Call(began, datetime.now(UTC), *given))

    def put(self, name: str, step: timedelta, *, on: Any = None) -> None:
        """Each has moments of its own, and others after a change. At any time some are due soon."""
        anchor = BEGIN + (int(name[1:]) * 7919 % SCHEDULES / SCHEDULES + 0.25) * step
        options: dict[str, Any] = {"every": step, "anchor": anchor, "missed": "all", "on": on}
        put = partial(self.stored.put, name, "quick", **options)
        put() if on else self._record(name, put, step, anchor)

    def delete(self, name: str) -> None:
        self._record(name, partial(self.stored.delete, name))

    def decided(self, after: datetime) -> datetime:
        """All moments before the result are decided; it is later than ``after``."""
        query = "select min(next_at) from leasework.schedule"
        return until(
            lambda: least if (least := self.scene.one(query)) > after else None, 300, "ticks"
        )

    def read(self) -> list[Any]:
        rows = self.scene.sql(TICKS)
        for name, at, *_ in rows:
            self.lives[name].ticks.append(at)  # KeyError: of a put that was rolled back
        return rows


@together
def test_the_ledger_is_exact_whatever_happens_to_schedules_and_their_leader(scene: Scene) -> None:
    scene.own_server({"track_commit_timestamp": "on"})
    story = Story(scene)
    names = list(story.lives)
    with psycopg.connect(scene.dsn) as user:
        for n, name in enumerate(names):
            if n == SCHEDULES // 3:
                story.kill_leader()
            story.put(name, STEP)
            if n % (SCHEDULES // 40) == 0:
                story.put(f"r{n:05}", STEP, on=user)
                user.rollback()
    first = story.decided(datetime.now(UTC) + 2 * STEP)

    for n, name in enumerate(names):
        if n == SCHEDULES // 2:
            story.kill_leader()
        if n % 3 == 0:
            story.put(name, 2 * STEP)
        elif n % 3 == 1:
            story.delete(name)
    second = story.decided(datetime.now(UTC) + 4 * STEP)
    for n, name in enumerate(names):
        if n % 3 != 1:
            story.delete(name)
    story.app.sync.close()

    rows = story.read()
    fired = {str(job): (name, at) for name, at, _, job, *_ in rows}
    dropped = sum(life.check([first, second]) for life in story.lives.values())
    assert {state for _, _, state, *_ in rows} == {"fired"}
    jobs = {str(job): (schedule, at) for job, schedule, at in scene.sql(JOBS)}
    assert jobs == fired, "one job for each moment, and no other"
    ends = {name: life.calls[-1].acknowledged for name, life in story.lives.items()}
    late = [(name, at) for name, at, *_, committed in rows if committed > ends[name]]
    assert not late, f"fired after the delete was acknowledged: {late[:5]}"
    report(story, rows, dropped)


def report(story: Story, rows: list[Any], dropped: int) -> None:
    calls = [call for life in story.lives.values() for call in life.calls]
    times = [(call.acknowledged - call.began).total_seconds() * 1000 for call in calls]
    firsts = {(name, life.ticks[0]) for name, life in story.lives.items()}
    late = [(decided - at).total_seconds() for _, at, _, _, decided, _ in rows]
    of_first = [(row[4] - row[1]).total_seconds() for row in rows if row[:2] in firsts]
    print(
        f"{SCHEDULES:,} schedules, each every {SECONDS} s; {len(calls):,} calls acknowledged, ms:"
        f" {spread(times)}\n"
        f"{len(rows):,} moments fired, each with one job; none twice, none missing, none after an"
        f" acknowledged delete\n"
        f"{dropped} moments were due, but not decided yet, when their schedule was deleted\n"
        f"seconds late: {spread(late)}; first tick after the put: {spread(of_first)}"
        f" (two kills of the leader included)"
    )


def spread(values: list[float]) -> str:
    ordered = sorted(values)
    p50, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    return f"p50 {p50:.3g}, p99 {p99:.3g}, max {ordered[-1]:.3g}"
