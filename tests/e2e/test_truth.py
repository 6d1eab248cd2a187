"""``leasework status`` says what is wrong, and not what is planned; an outage is told once."""

from __future__ import annotations

import json
import os
import re
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
async def long() -> None:
    await asyncio.Event().wait()

def deep(depth: int) -> None:
    if depth:
        deep(depth - 1)
    raise ConnectionRefusedError("the mail server does not answer")

@app.task(name="send", max_attempts=1)
async def send() -> None:
    deep(12)

@app.every(seconds=1, missed="skip", grace_seconds=3, name="each-second")
@app.task(name="tick")
async def tick() -> None: ...
"""


class Shop:
    def __init__(self, dsn: str, procs: Processes) -> None:
        self.dsn, self.procs = dsn, procs

    def run(self, *arguments: str) -> Process:
        env = {
            **os.environ, "LEASEWORK_DSN": self.dsn, "LEASEWORK_RECOVER_WITHIN": "9",
            "COLUMNS": "300",
        }  # fmt: skip
        return self.procs.start("-m", "leasework", *arguments, env=env)

    def said(self, *arguments: str, code: int = 0) -> str:
        process = self.run(*arguments)
        assert process.wait(60) == code, process.output
        return process.output

    def status(self) -> tuple[list[str], dict[str, str]]:
        """Kinds of problems, and the notes by kind."""
        process = self.run("status", "--json")
        code = process.wait(60)
        told = json.loads(process.output)
        assert code == (1 if told["problems"] else 0)
        notes = {note["kind"]: note["sentence"] for note in told["notes"]}
        return [problem["kind"] for problem in told["problems"]], notes

    def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), params or None)
            return cursor.fetchall() if cursor.description else []

    def worker(self, *options: str) -> Process:
        process = self.run("worker", "shop:app", *options)
        process.wait_for("node_started", 60)
        return process

    def enqueue(self, task: str, **options: Any) -> None:
        self.sql("select id from leasework.enqueue(%s)", json.dumps({"task": task, **options}))

    def some_moments_pass(self) -> None:
        """Until eight seconds have passed on the database's clock."""
        [(since,)] = self.sql("select clock_timestamp()")
        passed = "select clock_timestamp() > %s::timestamptz + interval '8 seconds'"
        until(lambda: self.sql(passed, since) == [(True,)], 60, "some moments to pass")

    def ticked(self) -> None:
        """Until a moment from now on has fired."""
        [(before,)] = self.sql("select clock_timestamp()")
        query = "select 1 from leasework.ticks where state = 'fired' and fire_at > %s"
        until(lambda: self.sql(query, before), 60, "a tick")


@pytest.fixture
def shop(migrated: str, procs: Processes) -> Shop:
    (procs.folder / "shop.py").write_text(SHOP)
    return Shop(migrated, procs)


def test_a_killed_worker_is_told_until_somebody_has_seen_it(shop: Shop) -> None:
    tree = shop.run("worker", "shop:app", "--processes", "2", "--queue", "default=2")
    tree.wait_for("lease_acquired", 60)
    shop.enqueue("long")
    running = "select worker_id from leasework.jobs where state = 'running' and task_name = 'long'"
    until(lambda: shop.sql(running), 60, "the job to run")
    [(dead,)] = shop.sql(running)
    pid = int(dead.split(":")[1])
    os.kill(pid, signal.SIGKILL)
    until(lambda: shop.sql(running) and shop.sql(running) != [(dead,)], 60, "its rescue")
    until(lambda: "node_died" in shop.status()[1], 60, "a note: another has started in its place")
    sentence = shop.status()[1]["node_died"]
    rescued = r"(1 job was|\d jobs were) rescued"  # a tick's job may have run there as well
    told = rf"Node {dead} died [\d.]+ s ago, {rescued}; one has started since"
    assert re.fullmatch(told, sentence)
    assert shop.said("nodes", "seen", "nobody:1:abcdef", code=1)
    assert "1 dead node acknowledged" in shop.said("nodes", "seen", dead)
    until(lambda: "node_died" not in shop.status()[1], 60)
    assert "0 dead nodes" in shop.said("nodes", "seen")
    acts = (
        "select fields ->> 'act', fields ->> 'on' from leasework.event where kind = 'person_acted'"
    )
    assert shop.sql(acts) == [("seen", f"dead node {dead}")]


def test_a_first_start_and_a_short_planned_stop_are_no_problem(shop: Shop) -> None:
    first = shop.worker()
    assert shop.status() == ([], {}), "nobody leads yet, and that is no problem"
    shop.ticked()
    first.kill(signal.SIGTERM)
    assert first.wait(60) == 0
    shop.some_moments_pass()
    shop.worker()
    shop.ticked()
    missed = "select 1 from leasework.event where kind = 'tick_missed'"
    until(lambda: shop.sql(missed), 60, "what was missed to be told")
    wrong, notes = shop.status()
    assert wrong == []
    assert "missed its moments" in notes["tick_missed"]
    assert "before the leading process had started" in notes["tick_missed"]


def test_moments_missed_in_a_pause_are_no_problem(shop: Shop) -> None:
    shop.worker()
    shop.ticked()
    shop.said("schedules", "pause", "each-second")
    shop.some_moments_pass()
    shop.said("schedules", "resume", "each-second")
    shop.ticked()
    missed = "select 1 from leasework.event where kind = 'tick_missed'"
    until(lambda: shop.sql(missed), 60, "what was missed to be reported")
    wrong, notes = shop.status()
    assert wrong == []
    assert "while it was paused" in notes["tick_missed"]


def test_lists_show_the_line_that_names_the_exception(shop: Shop) -> None:
    shop.worker()
    shop.enqueue("send", max_attempts=1)
    discarded = "select 1 from leasework.jobs where state = 'discarded'"
    until(lambda: shop.sql(discarded), 60)
    line = "ConnectionRefusedError: the mail server does not answer"
    assert line in shop.said("jobs", "--state", "discarded")
    until(lambda: line in shop.said("status", code=1), 60)
    kept = "select last_error, traceback from leasework.jobs where state = 'discarded'"
    [(error, traceback)] = shop.sql(kept)
    assert error == line and traceback.startswith("Traceback") and len(traceback) > 300


def test_an_outage_is_told_once_and_its_end_when_it_is_over(own_postgres: Any, procs: Any) -> None:
    server = own_postgres()
    (procs.folder / "shop.py").write_text(SHOP)
    shop = Shop(server.dsn, procs)
    shop.said("schema", "apply")
    worker = shop.worker("--queue", "default=1")
    worker.wait_for("lease_acquired", 60)
    shop.enqueue("long")  # its slot is taken: its queue asks the database for nothing
    running = "select 1 from leasework.jobs where state = 'running' and task_name = 'long'"
    until(lambda: shop.sql(running), 60)
    os.kill(server.pid, signal.SIGINT)  # a fast shutdown
    worker.wait_for(r"renew_failed .*times=16", 60)
    out = worker.output
    assert len(re.findall("renew_failed", out)) == 5, out
    assert len(re.findall("database_lost", out)) == 1, out
    assert "database_back" not in out
    server.restart()
    worker.wait_for("renew_works .*times=", 60)
    worker.wait_for("database_back", 60)
    until(lambda: shop.sql("select 1 from leasework.event where kind = 'database_back'"), 60)
    lost = "select count(*) from leasework.event where kind = 'database_lost'"
    assert shop.sql(lost) == [(1,)]
