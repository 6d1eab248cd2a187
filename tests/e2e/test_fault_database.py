"""The database goes away under the nodes: broken connections, a crash, a pause, rows deleted."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from leasework import App, errors
from tests.e2e.fault_apps.scene import (
    RECOVER_WITHIN,
    SLACK,
    TIMES,
    Scene,
    T,
    batch,
    boot_now,
    children,
    on_every_loop,
    signal_all,
    together,
)
from tests.support.requests import job_request
from tests.support.wait import until

__all__ = ["batch"]
pytestmark = pytest.mark.timeout(240)

CHAOS_SECONDS = 20.0 if os.environ.get("LEASEWORK_LONG") == "1" else 10.0
ENOUGH = 50
OTHERS = """
    select count(pg_terminate_backend(pid)) from pg_stat_activity
    where datname = %s and pid <> pg_backend_pid()
"""


class Producer(threading.Thread):
    """An application that enqueues one job after the other, and writes down what it was told."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self._app = App(dsn, call_timeout=5.0)
        self._ending = threading.Event()
        self.acknowledged: list[str] = []
        self.raised: list[Exception] = []

    def run(self) -> None:
        while not self._ending.wait(0.02):
            try:
                job = self._app.sync.enqueue(job_request("quick", "{}"))
            except errors.Unavailable as error:
                self.raised.append(error)
            else:
                self.acknowledged.append(str(job.id))

    def end(self) -> None:
        self._ending.set()
        self.join()


def terminate_everybody(scene: Scene, seconds: float, producer: Producer) -> int:
    """Breaks all connections to the scene's database twice a second, until the producer has
    enqueued enough; how many in all."""
    name = psycopg.conninfo.conninfo_to_dict(scene.dsn)["dbname"]
    end, broken = boot_now() + seconds, 0
    with psycopg.connect(make_conninfo(scene.dsn, dbname="postgres"), autocommit=True) as admin:
        while (moment := boot_now()) < end or len(producer.acknowledged) <= ENOUGH:
            [[count]] = admin.execute(OTHERS, [name]).fetchall()
            broken += count
            scene.wait_until_clock(moment + 0.5)
    return broken


@on_every_loop
def test_connections_that_break_all_the_time_and_a_crash_lose_nothing(scene: Scene) -> None:
    server = scene.own_server()
    workers = [scene.worker(name, ticks=1, slots=10) for name in ("one", "two")]
    scene.wait_for_leader(*workers)
    scene.wait_history("tick", count=2)
    producer = Producer(scene.dsn)
    producer.start()
    naps = scene.enqueue("nap", 60, seconds=0.5)
    broken = terminate_everybody(scene, CHAOS_SECONDS, producer)
    naps += scene.enqueue("nap", 40, seconds=0.5)
    crashed_at = boot_now()
    server.restart("immediate")
    back_at = boot_now()
    until(lambda: scene.history("end")[-1]["at"] > back_at, RECOVER_WITHIN + SLACK, "work again")
    resumed = boot_now() - back_at
    producer.end()
    acknowledged = producer.acknowledged
    scene.wait_done(acknowledged + naps, 60)

    runs = scene.history("start")
    again = [run for run in runs if run["attempt"] > 1]
    print(
        f"{broken} connections broken, a restart of {back_at - crashed_at:.1f} s, work after "
        f"{resumed:.1f} s; {len(acknowledged)} acknowledged, {len(producer.raised)} raised, "
        f"{len(again)} of {len(runs)} runs were not the first"
    )
    assert broken > 20 and len(acknowledged) > ENOUGH, "too tame to show anything"
    assert all(worker.running for worker in workers)
    unfinished = scene.one("select count(*) from leasework.job where schedule is null")
    assert unfinished == 0, "what was not acknowledged runs as well, or is not there"
    assert len({run["job"] for run in runs if run["task"] == "quick"}) >= len(acknowledged)
    once = {run["job"] for run in runs} - {run["job"] for run in again}
    assert all(len(scene.history("start", job=job)) == 1 for job in list(once)[:50])
    count = len(scene.history("tick"))
    until(lambda: len(scene.history("tick")) > count + 1, 15, "ticks to go on")
    assert scene.check_ticks() > CHAOS_SECONDS


@on_every_loop
def test_when_the_database_stands_still_every_node_fences_itself_and_nothing_overlaps(
    scene: Scene,
) -> None:
    server = scene.own_server()
    workers = [scene.worker(name, ticks=1, slots=5) for name in ("one", "two", "three")]
    scene.wait_for_leader(*workers)
    jobs = scene.enqueue("nap", 12, seconds=1.5 * T)
    scene.wait_history("start", count=12, task="nap")
    pids = [server.pid, *children(server.pid)]
    signal_all(pids, signal.SIGSTOP)
    paused_at = boot_now()
    try:
        for worker in workers:
            worker.wait_for("node_fenced", T)
        scene.wait_history("cancelled", count=12, timeout=5)
        cancelled = [line["at"] - paused_at for line in scene.history("cancelled")]
        scene.wait_until_clock(paused_at + 1.5 * T)
    finally:
        signal_all(pids, signal.SIGCONT)
    resumed_at = boot_now()
    print(f"handlers were cancelled {min(cancelled):.1f} to {max(cancelled):.1f} s after the stop")
    assert max(cancelled) <= TIMES.trust + TIMES.grace + SLACK
    started = scene.wait_history("start", count=24, timeout=20, task="nap")[-1]["at"]
    print(f"all ran again {started - resumed_at:.1f} s after the database went on")
    assert started - resumed_at <= RECOVER_WITHIN + SLACK
    scene.wait_done(jobs, 40)
    assert all(worker.running for worker in workers)
    scene.check_overlaps()
    assert all(len(scene.history("end", job=job)) == 1 for job in jobs)
    assert scene.check_ticks() > 1.5 * T
    crashes = scene.one("select min(crashes) from leasework.job_done where task_name = 'nap'")
    assert crashes >= 1, "a lease that is lost counts like a death"


@together
def test_rows_deleted_by_hand_are_made_again_and_told(scene: Scene) -> None:
    workers = [scene.worker(name, ticks=1) for name in ("one", "two")]
    leader = scene.wait_for_leader(*workers)
    victim = next(w for w in workers if w is not leader)
    jobs = scene.enqueue("nap", 30, seconds=8)
    until(lambda: scene.history("start", task="nap", pid=victim.pid), 10, "jobs on both")
    [old] = scene.node_ids(victim)
    with psycopg.connect(scene.dsn) as connection:  # in one transaction: nobody rescues between
        connection.execute("delete from leasework.node where id = %s", [old])
        rows = connection.execute("select id from leasework.job where node = %s", [old])
        held = {str(job) for (job,) in rows}
    deleted_at = boot_now()
    scene.wait_event("node_fenced", pid=victim.pid, why="refused")
    until(lambda: [i for i in scene.node_ids(victim) if i != old], 10, "a new identity")
    assert all(
        scene.history("cancelled", job=job) or scene.history("end", job=job)
        for job in held
        if scene.history("start", job=job, pid=victim.pid)
    )
    scene.wait_done(jobs, 60)
    print(f"all done {boot_now() - deleted_at:.1f} s after the node's row was gone")
    rescued = {e["job"] for e in scene.events("job_rescued")}
    cut_off = {line["job"] for line in scene.history("cancelled", pid=victim.pid)}
    # what had not begun may have been given back before
    assert cut_off and cut_off <= rescued <= held

    for table in ("leader", "fence"):
        term = scene.one("select max(token) from leasework.term")
        remade = len(scene.events("lease_remade"))
        scene.sql(f"delete from leasework.{table}")
        gone_at = boot_now()
        until(lambda remade=remade: len(scene.events("lease_remade")) > remade, 10, table)
        moment = until(
            lambda term=term: scene.sql(
                "select 1 from leasework.leaders where holder is not null and term >= %s"
                " and fence = term", term
            ), 10, "a leader with its fence",
        )  # fmt: skip
        assert moment
        print(f"{table} row back after {boot_now() - gone_at:.1f} s")
    count = len(scene.history("tick"))
    until(lambda: len(scene.history("tick")) > count + 2, 15, "ticks to go on")
    scene.check_ticks()
    tokens: list[Any] = scene.sql("select token from leasework.term order by acquired_at")
    assert tokens == sorted(set(tokens)), "no token came back"
    assert all(worker.running for worker in workers)
