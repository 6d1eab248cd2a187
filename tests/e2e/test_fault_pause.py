"""Processes that are stopped for two leases and go on: SIGSTOP and SIGCONT."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.fault_apps.scene import (
    RECOVER_WITHIN,
    SLACK,
    Scene,
    T,
    batch,
    boot_now,
    on_every_loop,
    together,
)
from tests.support.procs import Process
from tests.support.wait import until

__all__ = ["batch"]
pytestmark = pytest.mark.timeout(200)

PAUSE = 2 * T


def stop_with_jobs(
    scene: Scene, process: Process, jobs: list[str]
) -> tuple[list[dict[str, Any]], float]:
    """Stops the process once it runs some of ``jobs``: those runs, and the moment."""
    until(lambda: running(scene, process, jobs), 20, f"{process.name} to run jobs")
    process.stop()
    return running(scene, process, jobs), boot_now()


def running(scene: Scene, process: Process, jobs: list[str]) -> list[dict[str, Any]]:
    mine = scene.history(pid=process.pid)
    over = {line["token"] for line in mine if line["kind"] in ("end", "cancelled")}
    return [
        line
        for line in mine
        if line["kind"] == "start" and line["job"] in jobs and line["token"] not in over
    ]


def check_elsewhere(scene: Scene, lost: list[dict[str, Any]], stopped_at: float) -> float:
    """Each was run again by another process while the first was stopped; the latest start."""
    latest = 0.0
    for run in lost:
        again = [r for r in scene.history("start", job=run["job"]) if r["token"] > run["token"]]
        assert again, "it was run again"
        assert again[0]["pid"] != run["pid"]
        assert again[0]["attempt"] == run["attempt"] + 1
        latest = max(latest, again[0]["at"] - stopped_at)
    return latest


def check_came_back(scene: Scene, process: Process, old: list[str]) -> None:
    """It lost its identity and works under another one."""
    new = until(lambda: set(scene.node_ids(process)) - set(old), 15, "a new identity")
    assert len(new) == 1
    assert not set(scene.node_ids(process)) & set(old)
    process.wait_for("node_fenced", 10)
    scene.wait_event("node_fenced", pid=process.pid)

    def works() -> bool:
        scene.wait_done(scene.enqueue("quick", 20), 10)
        return bool(scene.history("end", task="quick", pid=process.pid))

    until(works, 20, "it to work again")


@together
def test_a_stopped_worker_loses_its_jobs_and_what_it_says_of_them_later(scene: Scene) -> None:
    leader = scene.worker("leader", queues="other")
    scene.wait_for_leader(leader)
    worker = scene.worker("worker")
    # handlers that are cancelled, and threads that end in the pause with a result
    jobs = scene.enqueue("nap", 6, seconds=PAUSE + 20) + scene.enqueue(
        "thread", 4, seconds=PAUSE - 2
    )
    old = scene.node_ids(worker)
    until(lambda: len(running(scene, worker, jobs)) == 10, 20, "it to run them all")
    lost, stopped_at = stop_with_jobs(scene, worker, jobs)
    spare = scene.worker("spare")
    scene.wait_until_clock(stopped_at + PAUSE)
    late = check_elsewhere(scene, lost, stopped_at)
    print(f"{len(lost)} jobs ran elsewhere, the last {late:.1f} s after the stop")
    assert late <= RECOVER_WITHIN + SLACK
    before = rows_of(scene, lost)

    worker.resume()
    for run in lost:
        scene.wait_refused(run)
        if run["task"] == "nap":
            assert scene.history("cancelled", token=run["token"], pid=worker.pid)
    assert rows_of(scene, lost) == before, "what it said changed nothing"
    check_came_back(scene, worker, old)
    assert worker.running and spare.running


def rows_of(scene: Scene, runs: list[dict[str, Any]]) -> list[Any]:
    """Whose the jobs are, by the tables."""
    ids = [run["job"] for run in runs]
    columns = "id, claim_token, attempt"
    return scene.sql(
        f"select {columns} from leasework.jobs where id = any (%s::uuid[]) order by id", ids
    )


@on_every_loop
def test_a_stopped_leader_is_followed_by_one_term_and_its_old_one_writes_nothing(
    scene: Scene,
) -> None:
    workers = [scene.worker(name, ticks=1) for name in ("one", "two")]
    leader = scene.wait_for_leader(*workers)
    other = next(w for w in workers if w is not leader)
    scene.wait_history("tick", count=2)
    old = scene.node_ids(leader)
    term = scene.one("select term from leasework.leaders")
    leader.stop()
    stopped_at = boot_now()
    scene.wait_for_leader(other)
    takeover = boot_now() - stopped_at
    print(f"takeover after {takeover:.1f} s")
    assert takeover <= RECOVER_WITHIN + SLACK
    scene.wait_until_clock(stopped_at + PAUSE)
    leader.resume()
    check_came_back(scene, leader, old)
    assert scene.one("select term from leasework.leaders") == term + 1
    assert scene.leader() == other.pid
    scene.wait_event("lease_lost", pid=leader.pid, term=term)

    # what the old term would have written, had it been stopped between its look and its act
    assert not scene.sql(OLD_TICK, term)
    assert scene.sql(OLD_TICK, term + 1), "the same is written under the new one"
    scene.sql("delete from leasework.tick where schedule = 'by hand'")
    count = len(scene.history("tick"))
    until(lambda: len(scene.history("tick")) > count + 1, 10, "ticks to go on")
    assert scene.check_ticks() >= PAUSE


OLD_TICK = """
    with f as materialized (
        select 1 from leasework.fence where name = 'default' and token = %s for share
    )
    insert into leasework.tick (app, schedule, fire_at, state)
    select 'default', 'by hand', now(), 'test' from f returning 1
"""


@together
def test_a_thread_that_does_not_stop_after_the_fencing_ends_its_process(scene: Scene) -> None:
    scene.wait_for_leader(scene.worker("leader", slots=1))
    worker = scene.worker("worker", slots=4)
    jobs = scene.enqueue("thread", 5, seconds=PAUSE + 60)
    lost, stopped_at = stop_with_jobs(scene, worker, jobs)
    assert lost
    scene.wait_until_clock(stopped_at + PAUSE)
    worker.resume()
    resumed_at = boot_now()
    assert worker.wait(60) == 75
    print(f"exit {boot_now() - resumed_at:.1f} s after it went on")
    assert "node_exits" in worker.output


@together
def test_a_web_process_goes_on_and_says_that_work_overlaps(scene: Scene) -> None:
    scene.wait_for_leader(scene.worker("leader", slots=1))
    web = scene.worker("web", slots=4, hard_exit=0)
    jobs = scene.enqueue("thread", 5, seconds=PAUSE + 4, times=1)
    old = scene.node_ids(web)
    until(lambda: running(scene, web, jobs), 20, "it to run jobs")
    lost, stopped_at = stop_with_jobs(scene, web, jobs)
    scene.wait_until_clock(stopped_at + PAUSE)
    web.resume()
    scene.wait_event("node_overlaps", pid=web.pid)
    check_came_back(scene, web, old)
    for run in lost:
        scene.wait_refused(run)
    assert web.running
    scene.wait_done(jobs, 60)
