"""The link to the database: answers that are lost, and a pooler in between."""

from __future__ import annotations

import asyncio

import pytest

from leasework import App
from tests.e2e.fault_apps.proxy import Proxy
from tests.e2e.fault_apps.scene import (
    RECOVER_WITHIN,
    SLACK,
    TIMES,
    Scene,
    batch,
    boot_now,
    on_every_loop,
    together,
)
from tests.support.pgbouncer import PgBouncer, program
from tests.support.requests import job_request
from tests.support.wait import until

__all__ = ["batch"]
pytestmark = pytest.mark.timeout(200)

CLAIM = "from leasework.claim("
ACK = "insert into leasework.job_done ("
ENQUEUE = "leasework.enqueue"
COPY = "copy leasework.job ("
REGISTER = "insert into leasework.node ("
ACQUIRE = "update leasework.leader l\n    set node ="
FIRE = "insert into leasework.tick ("


@on_every_loop
def test_jobs_of_a_claim_without_an_answer_are_given_back_and_run(scene: Scene) -> None:
    with Proxy(scene.dsn) as link:
        worker = scene.worker("worker", dsn=link.dsn, slots=10)
        loss = link.lose(CLAIM, times=4)
        jobs = scene.enqueue("nap", 60, seconds=0.2)
        scene.wait_done(jobs, 30)
        given_back = [e["given_back"] for e in scene.events("claim_unknown")]
        print(f"{loss.lost} claims without an answer, {sum(given_back)} jobs given back")
        assert loss.lost == 4
        assert sum(given_back) >= 4
        assert worker.running
    assert {run["attempt"] for run in scene.history("start")} == {1}, "none of them ran"
    assert len(scene.history("start")) == 60
    assert not scene.events("node_fenced")


@together
def test_a_hundred_enqueues_whose_answers_are_lost_are_a_hundred_jobs(scene: Scene) -> None:
    async def enqueue(link: Proxy) -> list[str]:
        app = App(link.dsn)
        singles = [await app.enqueue(job_request("quick", "{}")) for _ in range(100)]
        many = [await app.enqueue_many([job_request("quick", "{}")] * 30) for _ in range(10)]
        await app.close()
        return [str(job.id) for job in singles + [job for some in many for job in some]]

    with Proxy(scene.dsn) as link:
        loss = link.lose(ENQUEUE, times=1000, chance=0.3)
        loss_of_copies = link.lose(COPY, times=1000, chance=0.3, rows=False)
        acknowledged = asyncio.run(enqueue(link))
    print(f"{loss.lost} + {loss_of_copies.lost} answers lost")
    assert loss.lost >= 20 and loss_of_copies.lost >= 2
    rows = [str(job) for (job,) in scene.sql("select id from leasework.job")]
    assert len(rows) == 400
    assert set(rows) == set(acknowledged)


@together
def test_an_outcome_whose_answer_is_lost_is_written_once_and_not_refused(scene: Scene) -> None:
    with Proxy(scene.dsn) as link:
        worker = scene.worker("worker", dsn=link.dsn, slots=10)
        loss = link.lose(ACK, times=5)
        jobs = [job for _ in range(30) for job in scene.enqueue("quick", 10)]
        scene.wait_done(jobs, 30)
        until(lambda: loss.lost == 5 or scene.enqueue("quick"), 10, "five lost answers")
        more = scene.enqueue("quick", 5)
        scene.wait_done(more, 20)
    assert "ack_refused" not in worker.output and "job_lost" not in worker.output
    assert {run["attempt"] for run in scene.history("start")} == {1}


@together
def test_a_process_whose_first_answers_are_lost_joins_and_leads_all_the_same(scene: Scene) -> None:
    with Proxy(scene.dsn) as link:
        registering, acquiring = link.lose(REGISTER, times=2), link.lose(ACQUIRE, times=2)
        firing = link.lose(FIRE, times=3)
        started_at = boot_now()
        worker = scene.worker("worker", dsn=link.dsn, ticks=1)
        scene.wait_for_leader(worker)
        scene.wait_event("lease_acquired", pid=worker.pid)
        print(f"leads after {boot_now() - started_at:.1f} s")
        # a row that names us while we hold no term is ours to take: there is nobody to wait for
        assert boot_now() - started_at <= RECOVER_WITHIN + SLACK
        assert (registering.lost, acquiring.lost) == (2, 2)
        assert scene.one("select term from leasework.leaders") == 3, "a new token each time"
        until(lambda: firing.lost == 3, 20, "ticks without an answer")
        count = len(scene.history("tick"))
        until(lambda: len(scene.history("tick")) > count + 2, 15, "ticks to go on")
        scene.check_ticks()
        ids = scene.node_ids(worker)
        # the rows of the identities without an answer are buried like any other
        until(lambda: len(scene.node_ids(worker)) == 1, RECOVER_WITHIN + SLACK, f"one of {ids}")


@together
def test_the_whole_flow_goes_through_a_pooler(scene: Scene) -> None:
    if program() is None:
        pytest.skip("pgbouncer is not installed")
    bouncer = PgBouncer(scene.dsn)
    scene.stack.callback(bouncer.close)
    workers = [scene.worker(n, dsn=bouncer.dsn, ticks=1, slots=10) for n in ("one", "two")]
    leader = scene.wait_for_leader(*workers, timeout=15)
    scene.wait_event("listen_lost", pid=leader.pid)
    scene.wait_history("tick", count=2)
    jobs = scene.enqueue("nap", 40, seconds=4)
    jobs += scene.enqueue("quick", 20, options={"run_in": 0.5})
    jobs += scene.enqueue("thread", 4, seconds=0.5)
    [cancelled] = scene.enqueue("nap", seconds=60, options={"priority": -1})
    scene.wait_history("start", job=cancelled)
    asyncio.run(cancel(bouncer.dsn, cancelled))
    scene.wait_history("cancelled", job=cancelled)
    until(lambda: len(scene.history("start", pid=leader.pid, task="nap")) >= 5, 10, "its share")
    killed_at = boot_now()
    leader.kill()
    scene.wait_done(jobs, 60)
    again = [run["at"] for run in scene.history("start") if run["attempt"] > 1]
    assert again, "it had jobs"
    print(f"{len(again)} jobs again, the last {max(again) - killed_at:.1f} s after the kill")
    assert max(again) - killed_at <= RECOVER_WITHIN + SLACK
    assert scene.states([cancelled]) == {"cancelled": 1}
    count = len(scene.history("tick"))
    until(lambda: len(scene.history("tick")) > count + 2, 15, "ticks to go on")
    scene.check_ticks()
    survivor = next(w for w in workers if w is not leader)
    survivor.kill(15)
    assert survivor.wait(TIMES.lease + 10) == 0


async def cancel(dsn: str, job: str) -> None:
    app = App(dsn)
    assert await app.cancel(job)
    await app.close()
