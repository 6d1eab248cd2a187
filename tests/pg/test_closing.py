"""Closing ends. A loop that never yields can be stopped by nothing inside its process, so that each
of these runs in a process of its own, with a limit."""

from __future__ import annotations

import signal
import socket
from typing import Any

import pytest

SECONDS = 60.0
"""A limit against hanging, and no measurement."""

_ENQUEUE = """
import asyncio
from leasework import App

app = App()

@app.task
async def hello() -> None: ...

async def main() -> None:
    await app.enqueue(hello.job())
    await app.close()

asyncio.run(main())
"""

_POOL = """
import asyncio
from leasework.config import Settings
from leasework.pg.connection.pool import Pool

async def main() -> None:
    pool = Pool(Settings.load({}), "work")
    await pool.fetch("job/wake", {"queues": ["default"]})
    await pool.close()  # the task that opened the connection has just ended

asyncio.run(main())
"""

_LOCK = """
import asyncio
from dataclasses import replace
from leasework import App

async def nothing() -> None: ...

async def close(contests) -> None:
    contests._timings = replace(contests._timings, grace=0.0)
    contests._later(nothing())
    await asyncio.sleep(0)  # it has ended, and its callbacks are still to come
    await contests.close()

app = App()
with app.sync.lock("x"):
    guard = app.desk._light.guard
    asyncio.run_coroutine_threadsafe(close(guard.contests), guard.loop).result()
    print("closed")
"""


def test_an_application_closes_at_once_after_a_call(migrated: str, procs: Any):
    process = procs.start(code=_ENQUEUE, env={"LEASEWORK_DSN": migrated})
    assert process.wait(SECONDS) == 0, process.tail()


def test_a_pool_closes_in_the_moment_in_which_its_call_has_ended(migrated: str, procs: Any):
    process = procs.start(code=_POOL, env={"LEASEWORK_DSN": migrated})
    assert process.wait(SECONDS) == 0, process.tail()


def test_locks_close_while_work_of_theirs_has_just_ended(migrated: str, procs: Any):
    process = procs.start(code=_LOCK, env={"LEASEWORK_DSN": migrated})
    process.wait_for("closed", SECONDS)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_worker_stops_at_once_while_its_first_connection_does_not_answer(
    procs: Any, processes: int
):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(processes)
        silent.settimeout(SECONDS)
        dsn = f"host=127.0.0.1 port={silent.getsockname()[1]}"
        worker = procs.start(
            *("-m", "leasework", "worker", "tests.e2e.apps.texts:app", f"--processes={processes}"),
            env={"LEASEWORK_DSN": dsn, "LEASEWORK_CALL_TIMEOUT": "3600"},
        )
        connections = [silent.accept() for _ in range(processes)]
        worker.kill(signal.SIGTERM)
        assert worker.wait(SECONDS) == 0, worker.tail()
        assert len(connections) == processes
