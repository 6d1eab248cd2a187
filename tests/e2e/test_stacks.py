"""The stack of a running job, asked through the database, of real workers."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import psycopg
import pytest

from leasework.jobs.stacks import limited
from leasework.model.masking import MASK, masked_text
from tests.support.procs import Processes
from tests.support.wait import until

SHOP = """
import asyncio, time
from leasework import App
app = App(name="shop")

async def inner():
    password = "hunter2"; await asyncio.sleep(60)  # never seen: password = "hunter3"

@app.task(name="waits")
async def waits(ctx) -> None:
    await inner()

@app.task(name="blocks")
async def blocks(ctx) -> None:
    await asyncio.sleep(0)
    the_long_way()

def the_long_way():
    time.sleep(61)

@app.task(name="thread")
def thread(ctx) -> None:
    time.sleep(61)

@app.task(name="process", executor="process")
def process(ctx) -> None:
    time.sleep(60)
"""


@pytest.fixture
def shop(dsn: str, migrated: str, procs: Processes) -> Any:
    (procs.folder / "shop.py").write_text(SHOP)
    env = {"LEASEWORK_DSN": dsn, "LEASEWORK_RECOVER_WITHIN": "9", "LEASEWORK_GRACE": "0"}
    procs.start("-m", "leasework", "worker", "shop:app", name="worker", env=env)
    with psycopg.connect(migrated, autocommit=True) as sql:

        def stack(task: str) -> str:
            [(job,)] = sql.execute(
                "select (leasework.enqueue(%s)).id", [json.dumps({"task": task})]
            ).fetchall()
            running = "select 1 from leasework.jobs where id = %s and state = 'running'"
            began = "select 1 from leasework.job where id = %s and node is not null"
            until(lambda: sql.execute(running.encode(), [job]).fetchall(), 60, "its run")
            assert sql.execute(began.encode(), [job]).fetchall()
            says = ""
            for _ in range(5):  # the first look may come before the handler's first line
                asked = procs.start("-m", "leasework", "jobs", "stack", str(job), env=env)
                assert asked.wait(60) == 0, asked.output
                says = asked.output
                if "shop.py" in says or "child process" in says:
                    break
            acts = "select fields ->> 'act' from leasework.event where kind = 'person_acted'"
            assert ("look at the stack",) in sql.execute(acts).fetchall()
            return says

        yield stack


def test_a_handler_that_waits_or_runs_in_a_thread_is_seen_and_a_child_process_is_named(
    shop: Any,
) -> None:
    waits = shop("waits")
    assert waits.startswith("It is waiting in its event loop:")
    assert "in waits\n" in waits and "in inner\n" in waits and "sleep" in waits
    assert MASK in waits and "hunter" not in waits, "of the source too"
    process = shop("process")
    assert re.match(r"In the child process (\d+)\. .* py-spy dump --pid \1$", process), process
    thread = shop("thread")
    assert thread.startswith("In a thread of its own:") and "time.sleep(61)" in thread
    assert "attempt.py" not in thread


def test_a_handler_that_blocks_its_event_loop_is_seen_too(shop: Any) -> None:
    says = shop("blocks")
    assert says.startswith("It is running now, and blocks its event loop:")
    assert "in blocks\n" in says and "in the_long_way\n" in says and "runner" not in says


def test_what_is_shown_is_masked_and_limited() -> None:
    text = 'connect("postgresql://me:hunter2@db/x", api_key="hunter2"); pin = 4; n["token"] = \'h\''
    text += "; run('x --password hunter2')"
    shown = masked_text(text)
    assert "hunter2" not in shown and "'h'" not in shown and "postgresql://me:" in shown
    long = limited("\x00" + "a" * 50_000 + "the end", 8000)
    assert len(long) <= 8000 and "\x00" not in long and long.endswith("the end") and "cut" in long


@pytest.mark.parametrize(
    "text",
    ["token", "token=", 'token="', ":", "//", "://", "://:", "://a:b", "a", "passw='x", "--"],
)
def test_masking_takes_no_longer_for_hostile_text(text: str) -> None:
    began = time.process_time()
    masked_text(text * 20_000)
    assert time.process_time() - began < 5
