"""A node in a thread of a process without an event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from leasework import App, Context
from leasework.errors import ConfigError, JobCancelled, LeaseworkError
from leasework.integrations.background import BackgroundNode
from leasework.integrations.gunicorn import node
from tests.support.procs import Processes
from tests.support.wait import forever, until, until_async


@pytest.fixture
def app(dsn: str) -> App:
    app = App(dsn=dsn)
    asyncio.run(app.apply_schema())
    return app


def test_it_runs_jobs_while_the_block_runs_and_leaves_in_good_order(app: App, dsn: str) -> None:
    @app.task
    def where() -> str:
        return threading.current_thread().name

    with BackgroundNode(app):
        names = {thread.name for thread in threading.enumerate()}
        assert app.sync.enqueue(where.job()).id and "leasework-node" in names
        [job] = app.sync.jobs()
        assert app.sync.wait(job.id, 20) != threading.current_thread().name
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select from leasework.node").fetchall() == []
        assert (
            connection.execute("select from leasework.events where kind = 'node_dead'").fetchall()
            == []
        )
    assert "leasework-node" not in {thread.name for thread in threading.enumerate()}
    app.sync.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("end", ["closed", "stopped"])
def test_a_loop_that_ends_without_a_stop_releases_its_node_and_its_jobs(dsn: str, end: str) -> None:
    app, runs = App(dsn, recover_within=9), []
    loop = asyncio.new_event_loop()

    @app.task(name="hang")
    async def hang() -> None:
        runs.append(len(runs))
        if len(runs) == 1:
            await forever()

    async def begin() -> tuple[Any, Any]:
        await app.apply_schema()
        node = app.node()
        await node.__aenter__()
        job = await hang.enqueue()
        await until_async(lambda: runs, 30, "the job runs")
        return node, job

    node, job = loop.run_until_complete(begin())
    if end == "closed":
        loop.close()
    with psycopg.connect(dsn, autocommit=True) as connection:
        state = "select node, attempt, crashes from leasework.job"
        until(lambda: connection.execute(state).fetchone() == (None, 0, 0), 60, "the job is free")
        nodes = "select 1 from leasework.node"
        until(lambda: not connection.execute(nodes).fetchall(), 60, "the node has left")
    if end == "closed":
        until(lambda: not any(t.name == "leasework-guard" for t in threading.enumerate()), 20)
        del node, job
        gc.collect()  # what the loop left is destroyed here, not in another test
        return
    loop.run_until_complete(job.wait(60))  # the loop runs again, and the node with it
    assert runs == [0, 1]
    loop.run_until_complete(node.__aexit__(None, None, None))
    loop.run_until_complete(app.close())
    loop.close()


CLOSED = """
import asyncio, os, threading
from leasework import App, SyncContext

app, begun = App(recover_within=9), threading.Event()

@app.task(name="long")
def long(ctx: SyncContext) -> None:
    begun.set()
    while not ctx.cancelled:
        threading.Event().wait(0.05)
    print("it knows")
    os._exit(0)

async def begin():
    node = app.node()
    await node.__aenter__()
    await long.enqueue()
    await asyncio.to_thread(begun.wait)
    return node

loop = asyncio.new_event_loop()
node = loop.run_until_complete(begin())
loop.close()
threading.Event().wait(90)
"""


def test_a_handler_in_a_thread_of_a_closed_loop_is_told_that_its_job_is_lost(
    app: App, procs: Processes, dsn: str
) -> None:
    process = procs.start(code=CLOSED, env={"LEASEWORK_DSN": dsn})
    process.wait_for("it knows", 60)


def test_the_job_of_a_call_without_a_loop_waits_for_its_answers_there(app: App) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with BackgroundNode(app):
        one, two = app.sync.enqueue_many([add.job(1, 2), add.job(3, 4)])
        assert (one.wait(60), two.wait(timeout=60)) == (3, 7)
        assert one.get().state == "completed" and not one.cancel()
    kept = app.sync.enqueue(add.using(unique="k").job(5, 6))
    same = app.sync.enqueue(add.using(unique="k").job(5, 6))
    assert (kept.created, same.created, same.id) == (True, False, kept.id)
    assert kept == kept and kept != same and len({one, two, one}) == 2
    assert kept.cancel("no longer needed")
    with pytest.raises(JobCancelled, match="no longer needed"):
        kept.wait(60)
    app.sync.close()


def test_a_node_that_cannot_start_says_so_where_it_was_to_begin(dsn: str) -> None:
    with pytest.raises(LeaseworkError), BackgroundNode(App(dsn=dsn)):  # without a schema
        raise AssertionError("it began")


def test_a_handler_that_raises_through_the_loop_does_not_end_the_node(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def exit_later(ctx: Context) -> None:
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        await asyncio.sleep(0.1)

    with BackgroundNode(app):
        for _ in range(2):
            app.sync.wait(app.sync.enqueue(exit_later.job()).id, 20)
    assert "SystemExit" in caplog.text
    app.sync.close()


def test_a_handler_that_cancels_all_tasks_does_not_end_the_node(app: App) -> None:
    @app.task
    async def cancel_all(ctx: Context) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    with BackgroundNode(app):
        for _ in range(2):
            app.sync.wait(app.sync.enqueue(cancel_all.job()).id, 20)
    app.sync.close()


def test_a_handler_that_swallows_its_cancel_does_not_keep_a_stop(dsn: str) -> None:
    app = App(dsn=dsn, grace=0.1)
    asyncio.run(app.apply_schema())
    began, end = threading.Event(), threading.Event()

    @app.task
    async def swallow() -> None:
        began.set()
        while not end.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.1)

    node = BackgroundNode(app)
    with node:
        app.sync.enqueue(swallow.job())
        assert began.wait(30)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select from leasework.node").fetchall() == []
    assert node._thread.is_alive(), "or this test shows nothing"
    end.set()
    node._thread.join(30)


def test_a_stop_does_nothing_if_no_node_runs(app: App) -> None:
    node = BackgroundNode(app)
    node.stop()
    with node:
        node.stop()


def test_the_hooks_of_gunicorn_refuse_what_is_not_an_app() -> None:
    start, leave = node("leasework:Context")
    worker: Any = SimpleNamespace(pid=os.getpid())
    with pytest.raises(ConfigError, match="leasework:Context is not an App"):
        start(worker)
    leave(None, worker)  # gunicorn calls it in any case


HOOKS = """
import os
import threading
from leasework import App
from leasework.integrations.gunicorn import node

app = App(grace=0.1)
begun = threading.Event()

@app.task(name="long")
def long() -> None:
    begun.set()
    threading.Event().wait(600)

if __name__ == "__main__":
    start, leave = node("hooks:app")
    import hooks
    start(None)
    hooks.app.sync.enqueue(hooks.long.job())
    assert hooks.begun.wait(30)
    leave(None, None)
    print("goes on")
"""


def test_a_gunicorn_worker_ends_with_the_job_that_others_get(
    app: App, dsn: str, procs: Processes
) -> None:
    Path(procs.folder / "hooks.py").write_text(HOOKS)
    worker = procs.start("hooks.py", env={"LEASEWORK_DSN": dsn})
    assert worker.wait(60) == 0 and "goes on" not in worker.output, worker.output
    with psycopg.connect(dsn) as connection:
        [state] = connection.execute("select state from leasework.jobs").fetchall()
    assert state == ("scheduled",), "interrupted, and next as soon as somebody leads"


BOOT = """
import sys, threading
from leasework.integrations.gunicorn import node

threading.Thread(target=threading.Event().wait).start()
start, leave = node("hooks:app")
try:
    sys.exit(3)  # as gunicorn ends a worker that cannot boot
finally:
    leave(None, None)
"""


def test_a_gunicorn_worker_that_cannot_boot_keeps_its_exit_status(procs: Processes) -> None:
    """With another one, gunicorn starts it again for ever."""
    assert procs.start(code=BOOT).wait(60) == 3


def test_a_gunicorn_worker_that_finds_a_standby_may_be_started_again(
    app: App, dsn: str, procs: Processes
) -> None:
    """Any other exit status than 1 would make gunicorn end, with all its workers."""
    Path(procs.folder / "hooks.py").write_text(HOOKS)
    with psycopg.connect(dsn, autocommit=True) as connection:
        [(name,)] = connection.execute("select current_database()").fetchall()
        connection.execute(
            f'alter database "{name}" set default_transaction_read_only = on'.encode()
        )
    worker = procs.start("hooks.py", env={"LEASEWORK_DSN": dsn})
    assert worker.wait(60) == 1 and "this worker cannot start: " in worker.output, worker.output
