"""Handlers that hang: in the event loop, in Python, in C code that holds the GIL, in a thread."""

from __future__ import annotations

import signal
import time
from typing import Any

import psycopg
import pytest

from tests.e2e.fault_apps.scene import (
    RECOVER_WITHIN,
    SLACK,
    TIMES,
    Scene,
    T,
    batch,
    boot_now,
    together,
)
from tests.support.wait import until

__all__ = ["batch"]
pytestmark = pytest.mark.timeout(200)

LONG = 2 * T
HAND_OVER = 2 * TIMES.renew + 2 * TIMES.renew + TIMES.jitter
"""The loop owes an answer for two renewals, seen at a beat, and the successor's jitter."""


def a_stuck_leader_hands_over(scene: Scene, how: str) -> None:
    workers = [scene.worker(name, queues=f"default {name}", ticks=1) for name in ("one", "two")]
    leader = scene.wait_for_leader(*workers)
    other = next(w for w in workers if w is not leader)
    identities = scene.node_ids(leader)
    scene.wait_history("tick", count=2)
    own = {"queue": leader.name, "max_attempts": 1}
    beside = scene.enqueue("nap", 5, seconds=1, options=own)
    [stuck] = scene.enqueue(how, seconds=LONG, options=own)
    [start] = scene.wait_history("start", job=stuck)
    scene.wait_for_leader(other)
    print(f"{how}: handed over after {boot_now() - start['at']:.1f} s")
    assert boot_now() - start["at"] <= HAND_OVER + SLACK
    assert not scene.history("end", job=stuck), "it was stuck all the time"
    scene.wait_event("lease_resigned", pid=leader.pid, timeout=LONG + 10)

    scene.wait_done([stuck, *beside], LONG + 10)
    assert scene.node_ids(leader) == identities, "the node's lease was never lost"
    assert not scene.events("node_fenced") and not scene.events("node_died")
    assert not scene.events("job_rescued")
    assert [r["attempt"] for r in scene.history("start", task=how)] == [1]
    assert len(scene.history("start", task="nap")) == 5
    begun = [
        t for t in scene.history("tick") if start["at"] + HAND_OVER < t["at"] < start["at"] + LONG
    ]
    assert {t["pid"] for t in begun} == {other.pid}, "the schedule went on meanwhile"
    scene.wait_event("loop_free", pid=leader.pid)
    assert scene.check_ticks() >= LONG


@together
def test_a_leader_whose_loop_is_blocked_hands_over_and_loses_no_job(scene: Scene) -> None:
    a_stuck_leader_hands_over(scene, "block")


@together
def test_a_leader_that_burns_cpu_in_python_hands_over_and_loses_no_job(scene: Scene) -> None:
    a_stuck_leader_hands_over(scene, "burn")


@together
def test_jobs_that_wait_behind_a_blocked_loop_run_elsewhere(scene: Scene) -> None:
    [stuck] = scene.enqueue("block", seconds=LONG + 30)
    waiting = scene.enqueue("nap", 20, seconds=0.01)
    worker = scene.worker("worker")
    given_back = "select count(*) from leasework.job where not fresh and node is null"
    until(lambda: scene.one(given_back) > 15, LONG, "the jobs that have not started to go back")
    says = "select (info ->> 'loop_stuck')::float from leasework.nodes"
    until(lambda: scene.one(says), 10, "its report")
    scene.worker("spare")
    scene.wait_done(waiting, 20)
    assert not scene.history("end", job=stuck), "it was stuck all the time"
    assert {r["pid"] for r in scene.history("start", task="nap")}.isdisjoint({worker.pid})
    assert {r["attempt"] for r in scene.history("start")} == {1}
    assert not scene.events("job_rescued") and not scene.events("node_fenced")


@together
def test_a_worker_whose_gil_is_held_by_c_code_is_ended_and_its_jobs_run_elsewhere(
    scene: Scene,
) -> None:
    scene.wait_for_leader(scene.worker("leader", queues="other"))
    worker = scene.worker("worker")
    jobs = scene.enqueue("nap", 5, seconds=LONG + 20)
    scene.wait_history("start", count=5)
    [held] = scene.enqueue("hold_gil", seconds=60)
    [start] = scene.wait_history("start", job=held)
    scene.worker("spare")
    seen = boot_now()
    while worker.running:
        seen = boot_now()
        assert seen < start["at"] + LONG + SLACK, "it was not ended"
        time.sleep(0.02)
    assert worker.wait(LONG) == -signal.SIGKILL
    ended = boot_now()
    print(f"ended {ended - start['at']:.1f} s after the GIL was gone")
    assert ended - start["at"] <= TIMES.trust + TIMES.grace + SLACK
    scene.wait_history("start", job=held, count=2, timeout=20)
    again = [
        min(r["at"] for r in scene.history("start", job=job, attempt=2)) for job in [held, *jobs]
    ]
    print(f"ran again after {max(again) - start['at']:.1f} s")
    assert max(again) - start["at"] <= RECOVER_WITHIN + SLACK
    assert min(again) > seen, "nowhere at the same time"
    scene.wait_done([held], 10)


@together
def test_a_thread_that_hangs_is_taken_away_by_token_and_its_late_result_changes_nothing(
    scene: Scene,
) -> None:
    worker = scene.worker("worker")
    options = {"requeue_after": 2, "timeout": 1}
    [job] = scene.enqueue("thread", seconds=20, options=options)
    first, *_ = scene.wait_history("start", job=job)
    scene.wait_event("job_overdue", job=job)
    named = until(lambda: scene.one("select info -> 'overdue' from leasework.nodes"), 10, "a name")
    assert named[0]["id"] == job
    scene.wait_event("job_requeued", job=job)
    second = scene.wait_history("start", job=job, count=2)[1]
    print(f"ran again after {second['at'] - first['at']:.1f} s")
    assert second["at"] - first["at"] <= 2 + TIMES.renew + SLACK
    scene.wait_done([job], 10)
    assert not scene.history("end", token=first["token"]), "the first run hangs on"
    scene.wait_history("end", token=first["token"], timeout=40)
    scene.wait_refused(first)
    record = scene.sql("select claim_token, state from leasework.jobs where id = %s", job)
    assert record == [(second["token"], "completed")]
    assert worker.running and not scene.events("node_fenced")


@together
def test_a_job_that_blocks_its_loop_is_taken_away_and_runs_elsewhere(scene: Scene) -> None:
    workers = [scene.worker(name, slots=1) for name in ("one", "two")]
    [job] = scene.enqueue("block", seconds=10, options={"requeue_after": 2})
    first, *_ = scene.wait_history("start", job=job)
    second = scene.wait_history("start", job=job, count=2)[1]
    assert second["pid"] != first["pid"]
    print(f"ran elsewhere after {second['at'] - first['at']:.1f} s")
    assert second["at"] - first["at"] <= 2 + TIMES.renew + SLACK
    scene.wait_done([job], 10)
    scene.wait_history("end", token=first["token"], timeout=20)
    scene.wait_refused(first)
    assert scene.one("select claim_token from leasework.jobs where id = %s", job) == second["token"]
    assert all(w.running for w in workers)


BLOCKED = """
    select count(*) from pg_stat_activity where datname = current_database()
    and application_name like 'leasework %' and wait_event_type = 'Lock'
"""


@together
def test_enqueues_that_wait_for_a_users_transaction_delay_neither_recovery_nor_ticks(
    scene: Scene,
) -> None:
    workers = [scene.worker(name, queues=f"default {name}", ticks=1) for name in ("one", "two")]
    leader = scene.wait_for_leader(*workers)
    victim = next(w for w in workers if w is not leader)
    with psycopg.connect(scene.dsn) as user:
        user.execute('select leasework.enqueue(\'{"task": "quick", "unique": "one"}\')')
        waiting = scene.enqueue("enqueue_one", 6, key="one", options={"queue": leader.name})
        until(lambda: scene.one(BLOCKED), 20, "enqueues that wait")
        naps = []

        def the_victim_has_some() -> Any:
            naps.extend(scene.enqueue("nap", 5, seconds=3 * T))  # the leader's slots fill up
            return scene.history("start", task="nap", pid=victim.pid)

        until(the_victim_has_some, 60, "jobs of the victim", every=1)
        victim.kill()
        killed_at = boot_now()
        ran = {run["job"] for run in scene.history("start", task="nap", pid=victim.pid)}
        for job in ran:
            scene.wait_history("start", job=job, attempt=2, timeout=RECOVER_WITHIN + SLACK)
        print(f"{len(ran)} jobs ran again {boot_now() - killed_at:.1f} s after the kill")
        assert boot_now() - killed_at <= RECOVER_WITHIN + SLACK
        count = len(scene.history("tick"))
        until(lambda: len(scene.history("tick")) > count + 2, 10, "ticks to go on")
        until(lambda: scene.one(BLOCKED), 10, "them to wait still")
        user.rollback()
    scene.wait_done(waiting, 30)
    scene.wait_done(naps, 60)
    scene.check_ticks()
