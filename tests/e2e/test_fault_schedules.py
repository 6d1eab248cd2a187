"""Schedules are put, changed and deleted while they fire and while their leader is killed."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from leasehold import App
from tests.e2e.fault_apps.scene import Scene, batch, together
from tests.support.wait import until

__all__ = ["batch"]
pytestmark = pytest.mark.timeout(600)
LONG = os.environ.get("LEASEHOLD_LONG") == "1"
SCHEDULES, SECONDS = (10_000, 10) if LONG else (120, 1)
LEAST = """
select coalesce(min(n), 0)
from (select count(*) as n from leasehold.tick group by schedule) t
"""
TICKS = "select schedule, fire_at, state, job_id from leasehold.tick order by schedule, fire_at"
JOBS = """
select id, schedule, tick_at from leasehold.job union all
select id, schedule, tick_at from leasehold.job_done
"""


@together
def test_the_ledger_is_exact_whatever_happens_to_schedules_and_their_leader(scene: Scene) -> None:
    app = App(scene.dsn)
    app.task(name="quick")(lambda: None)
    stored = app.sync.schedules
    workers = [scene.worker(name, slots=20) for name in ("one", "two")]
    leader = scene.wait_for_leader(*workers)
    names = [f"s{n:05}" for n in range(SCHEDULES)]
    for name in names:
        stored.put(name, "quick", every=SECONDS, missed="all")
    until(lambda: scene.one(LEAST) >= 2, 120, "two ticks of each")

    changed, deleted = set(names[::3]), set(names[1::3])
    leader.kill()
    for name in changed:
        stored.put(name, "quick", every=2 * SECONDS, missed="all")
    for name in deleted:
        stored.delete(name)
    before = scene.one("select count(*) from leasehold.tick")
    more = 3 * (SCHEDULES - len(deleted))
    until(lambda: scene.one("select count(*) from leasehold.tick") > before + more, 120, "ticks")
    for name in set(names) - deleted:
        stored.delete(name)
    app.sync.close()

    moments: dict[str, list[datetime]] = {name: [] for name in names}
    fired: dict[str, tuple[str, datetime]] = {}
    for schedule, at, state, job in scene.sql(TICKS):
        assert state == "fired", (schedule, at)
        moments[schedule].append(at)
        fired[str(job)] = schedule, at
    interval = timedelta(seconds=SECONDS)
    for name, ticks in moments.items():
        steps = [(later - earlier) / interval for earlier, later in pairwise(ticks)]
        allowed = {1.0, 2.0} if name in changed else {1.0}
        assert set(steps) <= allowed and steps == sorted(steps), (name, steps)
    jobs = {str(job): (schedule, at) for job, schedule, at in scene.sql(JOBS)}
    assert jobs == fired, "one job for each moment, and no other"
    print(f"{SCHEDULES} schedules, {len(fired)} moments, each with one job")
