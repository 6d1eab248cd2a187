"""kill -9: of a worker in the middle of its jobs, and of workers by a job that does it.

No parent certifies these deaths: the others have to find out by themselves.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.fault_apps.scene import RECOVER_WITHIN, SLACK, Scene, batch, boot_now, together
from tests.support.wait import until

__all__ = ["batch"]
pytestmark = pytest.mark.timeout(200)


@together
def test_a_leader_killed_in_mid_job_loses_none_and_only_its_own_run_again(scene: Scene) -> None:
    workers = [scene.worker(name, ticks=1, slots=20) for name in ("one", "two")]
    leader = scene.wait_for_leader(*workers)
    scene.wait_history("tick", count=2)
    scene.enqueue("quick", 1000)  # it works fast, so it prefetches
    jobs = scene.enqueue("nap", 1000, seconds=0.3)
    scene.wait_history("end", count=60, task="nap")
    leader.stop()  # so that what it holds stays what it holds
    scene.wait_until_clock(boot_now() + 1.0)  # a claim that it had sent
    held = held_by(scene, leader.pid)
    killed_at = boot_now()
    leader.kill()
    assert len(held) >= 10, "it had its hands full, apart from jobs that ended just then"
    scene.wait_done(jobs, 60)

    runs = scene.history("start", task="nap")
    again = {run["job"] for run in runs if run["attempt"] > 1}
    assert again <= held, "only what it held was run again"
    late = max(min(r["at"] for r in runs if r["job"] == job and r["at"] > killed_at)
               for job in again) - killed_at  # fmt: skip
    print(f"held {len(held)}, run again {len(again)}, the last after {late:.1f} s")
    assert late <= RECOVER_WITHIN + SLACK
    assert {e["job"] for e in scene.events("job_rescued")} >= again
    until(lambda: len(scene.history("tick")) > 5, 15, "ticks to go on")
    assert scene.check_ticks() > 5


def held_by(scene: Scene, pid: int) -> set[str]:
    rows = scene.sql(
        "select j.id from leasework.job j join leasework.node n on n.id = j.node where n.pid = %s",
        pid,
    )
    return {str(job) for (job,) in rows}


@together
def test_a_job_that_kills_its_workers_is_quarantined_and_its_neighbours_are_not(
    scene: Scene,
) -> None:
    [killer] = scene.enqueue("die", options={"priority": -1})
    neighbours = scene.enqueue("nap", 8, seconds=1.5)
    workers: list[Any] = [scene.worker("first")]

    def quarantined() -> bool:
        if not workers[-1].running:
            # a supervisor would
            workers.append(scene.worker(f"next{len(workers)}", wait=False))
        return scene.states([killer]) == {"quarantined": 1}

    until(quarantined, 80, "the killer to be quarantined", every=0.1)
    scene.wait_done(neighbours, 30)
    deaths = [w for w in workers if not w.running]
    print(f"{len(deaths)} deaths, {[w.returncode for w in deaths]}")
    assert len(deaths) == 3
    assert [r["attempt"] for r in scene.history("start", job=killer)] == [1, 2, 3]
    until(lambda: scene.events("job_quarantined"), 20, "the event's row")
    assert [e["job"] for e in scene.events("job_quarantined")] == [killer]
    started = scene.history("start", job=killer)[-1]["at"]
    alone = [
        line for line in scene.history("start", task="nap")
        if line["at"] < started and not ended_before(scene, line, started)
        and line["pid"] == workers[2].pid
    ]  # fmt: skip
    assert not alone, "before its last run the others had ended"
    again = scene.worker("last")
    more = scene.enqueue("nap", 3, seconds=0.1)
    scene.wait_done(more, 20)
    assert again.running
    assert scene.states([killer]) == {"quarantined": 1}, "nobody runs it again"


def ended_before(scene: Scene, start: dict[str, Any], moment: float) -> bool:
    ends = scene.history("end", job=start["job"], token=start["token"])
    return bool(ends) and ends[0]["at"] <= moment
