"""``leasework worker MODULE:APP --drain`` as real processes."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import psycopg
import pytest

from leasework.env import ASSIGNED_NODE
from tests.support.procs import Process, Processes
from tests.support.wait import until

SHOP = """
import asyncio
from leasework import App
app = App(name="shop")

@app.task(name="long")
async def long(ctx) -> str:
    print("began", flush=True)
    await asyncio.sleep(8)
    return "whole"
"""

BROKEN = f"""
import os
if "{ASSIGNED_NODE}" in os.environ:  # as a supervisor's worker
    raise SystemExit(3)
"""


@pytest.fixture
def run(dsn: str, migrated: str, procs: Processes) -> Any:
    (procs.folder / "shop.py").write_text(SHOP)

    def start(*arguments: str) -> Process:
        env = {"LEASEWORK_DSN": dsn, "LEASEWORK_RECOVER_WITHIN": "9"}
        return procs.start("-m", "leasework", "worker", "shop:app", *arguments, env=env)

    return start


def test_workers_that_are_asked_to_drain_finish_their_jobs_and_end(
    run: Any, direct_dsn: str
) -> None:
    alone, supervisor = run(), run("--processes", "2")
    with psycopg.connect(direct_dsn, autocommit=True) as sql:
        drains = "select count(*) from leasework.node where info ->> 'drains' = 'true'"
        until(lambda: sql.execute(drains).fetchone() == (3,), 60, "three workers")
        job = json.dumps({"task": "long"})
        [(job_id,)] = sql.execute("select (leasework.enqueue(%s)).id", [job]).fetchall()
        state = "select state, attempt from leasework.jobs where id = %s"
        until(lambda: sql.execute(state, [job_id]).fetchone()[1] == 1, 30, "its run")
        drain = run("--drain")
        assert drain.wait(60) == 0
        assert "Asked 3 workers of shop to drain." in drain.output
        assert drain.output.count("has stopped") == 3
        assert sql.execute(state, [job_id]).fetchone() == ("completed", 1)
        assert alone.wait(30) == 0 and supervisor.wait(30) == 0, "and nobody is started again"
        assert sql.execute("select 1 from leasework.node").fetchall() == []
    again = run("--drain")
    assert again.wait(60) == 0 and "0 workers" in again.output


def test_workers_whose_application_took_a_lock_as_it_was_loaded_are_not_started_again(
    run: Any, direct_dsn: str, procs: Processes
) -> None:
    locks = "import os\nwith app.sync.lock(str(os.getpid())):\n    pass\n"
    (procs.folder / "shop.py").write_text(SHOP + locks)
    supervisor = run("--processes", "2")
    with psycopg.connect(direct_dsn, autocommit=True) as sql:
        drains = "select count(*) from leasework.node where info ->> 'drains' = 'true'"
        until(lambda: sql.execute(drains).fetchone() == (2,), 60, "two workers")
    assert run("--drain").wait(60) == 0
    assert supervisor.wait(60) == 0


def test_a_supervisor_ends_although_one_of_its_workers_was_down_when_all_were_asked(
    run: Any, direct_dsn: str, procs: Processes
) -> None:
    supervisor = run("--processes", "2")
    with psycopg.connect(direct_dsn, autocommit=True) as sql:
        drains = "select pid from leasework.node where info ->> 'drains' = 'true'"
        [(pid,), _] = until(
            lambda: len(rows := sql.execute(drains).fetchall()) == 2 and rows, 60, "two workers"
        )
        (procs.folder / "shop.py").write_text(BROKEN + SHOP)
        os.kill(pid, signal.SIGKILL)
        supervisor.wait_for("worker_dies_at_once", 60)
        drain = run("--drain")
        assert drain.wait(60) == 0 and "Asked 1 worker of shop" in drain.output
        assert supervisor.wait(60) == 0
        assert sql.execute("select 1 from leasework.node").fetchall() == []
