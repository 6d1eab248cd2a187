"""``leasework nodes stop-claiming | resume | drain`` with real workers."""

from __future__ import annotations

import json
import signal
from typing import Any

import psycopg
import pytest

from tests.support.procs import Process, Processes
from tests.support.wait import until

SHOP = """
import asyncio
from leasework import App
app = App(name="shop")

@app.task(name="long")
async def long(ctx, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    return str(ctx.worker_id)
"""


class Shop:
    def __init__(self, dsn: str, direct_dsn: str, procs: Processes) -> None:
        self.dsn, self.direct_dsn, self.procs = dsn, direct_dsn, procs

    def run(self, *arguments: str) -> Process:
        env = {"LEASEWORK_DSN": self.dsn, "LEASEWORK_RECOVER_WITHIN": "9"}
        return self.procs.start("-m", "leasework", *arguments, env=env)

    def said(self, *arguments: str, code: int = 0) -> str:
        process = self.run(*arguments)
        assert process.wait(60) == code, process.output
        return process.output

    def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.direct_dsn, autocommit=True) as connection:
            return connection.execute(query.encode(), params).fetchall()

    def worker(self) -> tuple[Process, str]:
        process = self.run("worker", "shop:app")
        query = "select worker_id from leasework.nodes where pid = %s and info ? 'drains'"
        until(lambda: self.sql(query, process.pid), 60, "its node")
        return process, self.sql(query, process.pid)[0][0]

    def enqueue(self, count: int = 1, **payload: Any) -> list[Any]:
        job = json.dumps({"task": "long", "payload": payload})
        return [self.sql("select (leasework.enqueue(%s)).id", job)[0][0] for _ in range(count)]

    def ran_on(self, jobs: list[Any]) -> set[str]:
        """The workers; waits for the jobs' end."""
        query = "select result #>> '{}' from leasework.jobs where id = any (%s) and state = %s"
        until(lambda: len(self.sql(query, jobs, "completed")) == len(jobs), 60, "their end")
        return {worker for (worker,) in self.sql(query, jobs, "completed")}

    def state(self, job: Any) -> str:
        return str(self.sql("select state from leasework.jobs where id = %s", job)[0][0])


@pytest.fixture
def shop(dsn: str, migrated: str, procs: Processes) -> Shop:
    (procs.folder / "shop.py").write_text(SHOP)
    return Shop(dsn, migrated, procs)


def test_a_node_stops_claiming_claims_again_and_drains(shop: Shop) -> None:
    process, worker = shop.worker()
    [running] = shop.enqueue(seconds=15.0)
    until(lambda: shop.state(running) == "running", 30)

    assert f"{worker} stops claiming jobs." in shop.said("nodes", "stop-claiming", worker)
    obeys = "select info ->> 'halted' from leasework.nodes where worker_id = %s"
    until(lambda: shop.sql(obeys, worker) == [("true",)], 30, "its word that it obeys")
    waiting = shop.enqueue(3)
    shown = json.loads(shop.said("nodes", "--json"))
    assert [(n["halted"], n["executes"]) for n in shown] == [(True, False)]
    assert "no live node runs them" in shop.said("status", code=1)
    other, its_id = shop.worker()
    assert shop.ran_on(waiting) == {its_id}, "it left them to another"
    assert shop.ran_on([running]) == {worker}, "what it ran, it ran to the end"

    assert f"{its_id} stops claiming jobs." in shop.said("nodes", "stop-claiming", its_id)
    until(lambda: shop.sql(obeys, its_id) == [("true",)], 30)
    held = shop.enqueue(2)
    assert "claims jobs again" in shop.said("nodes", "resume", worker)
    assert shop.ran_on(held) == {worker}

    assert "exits when its running jobs have finished" in shop.said("nodes", "drain", its_id)
    assert other.wait(60) == 0
    assert process.running
    acts = "select fields ->> 'act' from leasework.event where kind = 'person_acted' order by id"
    assert [act for (act,) in shop.sql(acts)] == [
        "stop claiming", "stop claiming", "claim again", "drain",
    ]  # fmt: skip
    kinds = {kind for (kind,) in shop.sql("select kind from leasework.event")}
    assert {"node_halted", "node_resumed"} <= kinds


def test_one_worker_of_a_supervisor_is_drained_and_the_others_go_on(shop: Shop) -> None:
    tree = shop.run("worker", "shop:app", "--processes", "2")
    query = "select worker_id, pid from leasework.nodes where info ? 'drains' order by worker_id"
    until(lambda: len(shop.sql(query)) == 2, 60, "two workers")
    (first, pid), (second, other) = shop.sql(query)
    says = "select count(*) from leasework.nodes where info ->> 'drains' = 'true'"
    assert shop.sql(says) == [(2,)], "what it says of itself first is true already"
    assert f"{first} exits when its running jobs have finished" in shop.said(
        "nodes", "drain", first
    )
    tree.wait_for(rf"worker_drained .*pid={pid}", 60)
    until(lambda: shop.sql(query) == [(second, other)], 30, "its row's end")
    assert shop.ran_on(shop.enqueue(3)) == {second}, "the other was not stopped"
    assert shop.sql(query) == [(second, other)] and tree.running
    assert tree.output.count("worker_started") == 2, "nobody took the drained one's place"
    shop.said("nodes", "drain", second)
    assert tree.wait(60) == 0, "nobody is left"
    assert "supervisor_stopping" not in tree.output and "worker_ended" not in tree.output


def test_a_drain_that_is_awaited_lists_what_it_cut_short(shop: Shop) -> None:
    process, worker = shop.worker()
    [whole] = shop.enqueue(seconds=0.0)
    assert shop.ran_on([whole]) == {worker}
    [hangs] = shop.enqueue(seconds=600.0)
    until(lambda: shop.state(hangs) == "running", 30)
    said = shop.said("nodes", "drain", worker, "--wait")
    assert "Its stop cut 1 job short." in said and str(hangs) in said and str(whole) not in said
    assert process.wait(60) == 0
    assert shop.state(hangs) in ("available", "scheduled"), "another may run it"


def test_a_node_is_named_by_its_beginning_and_never_guessed(shop: Shop) -> None:
    _, first = shop.worker()
    _, second = shop.worker()
    host, pid, _ = first.rsplit(":", 2)
    both = shop.said("nodes", "stop-claiming", f"{host}:", code=1)
    assert "2 nodes match this name" in both and first in both and second in both
    assert "no such node" in shop.said("nodes", "drain", "nowhere:1", code=1)
    assert "no such node" in shop.said("nodes", "drain", "", code=1)
    halted = "select worker_id from leasework.nodes where halted"
    assert shop.sql(halted) == []
    assert first in shop.said("nodes", "stop-claiming", f"{host}:{pid}:")
    assert shop.sql(halted) == [(first,)]


def test_the_term_of_a_killed_leader_says_that_its_process_died(shop: Shop) -> None:
    first, worker = shop.worker()
    until(lambda: shop.sql("select 1 from leasework.term"), 30, "a leader")
    first.kill(signal.SIGKILL)
    shop.worker()
    died = "select 1 from leasework.event where kind = 'node_died'"
    until(lambda: shop.sql(died), 60, "the next leader's word")
    later, term = json.loads(shop.said("leaders", "--terms", "--json"))
    assert (term["holder"], term["ended_at"]) == (worker, later["acquired_at"])
    assert term["ended"] == "its process died or lost the database"
