"""``leasework worker`` as real processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from leasework.env import ASSIGNED_NODE
from tests.support.procs import Process, Processes
from tests.support.wait import until

SHOP = """
import asyncio, atexit, logging, threading, time
from pathlib import Path
from leasework import App

atexit.register(Path("last-words").touch)

app = App(name="shop")

@app.task(name="mail")
async def mail(ctx, to: str = "x") -> str:
    ctx.log.info("mailing")
    logging.getLogger("other.library").info("sending to %s", to)
    return to

@app.task(name="block")
async def block(ctx) -> None:
    print("blocking", flush=True)
    time.sleep(600)

@app.task(name="stuck")
def stuck() -> None:
    print("stuck", flush=True)
    threading.Event().wait()

@app.task(name="swallows")
async def swallows() -> None:
    print("stuck", flush=True)
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

@app.task(name="in_the_loops_pool")
async def in_the_loops_pool() -> None:
    await asyncio.to_thread(stuck)

@app.task(name="in_c_in_the_loops_pool")
async def in_c_in_the_loops_pool() -> None:
    print("stuck", flush=True)
    await asyncio.to_thread(time.sleep, 600)

def make() -> App:
    return app
"""


PIPED = """
import os, signal, subprocess, sys
worker = subprocess.Popen(
    [sys.executable, "-m", "leasework", "worker", "shop:app"], stderr=subprocess.PIPE
)
for line in worker.stderr:
    if b"node_started" in line:
        break
worker.stderr.close()

def stop(*_):
    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGINT)

signal.signal(signal.SIGTERM, stop)
print("piped", flush=True)
sys.exit(worker.wait() not in (128 + signal.SIGTERM, 128 + signal.SIGINT))
"""


class Shop:
    """The application of these tests on one database, and its worker processes."""

    def __init__(self, procs: Processes, dsn: str, schema: str = "leasework") -> None:
        self.procs = procs
        self.dsn = dsn
        self.schema = schema
        self._connection: psycopg.Connection[Any] | None = None
        (procs.folder / "shop.py").write_text(SHOP)

    def leasework(self, *arguments: str, **env: str) -> Process:
        environ = {"LEASEWORK_DSN": self.dsn, "LEASEWORK_SCHEMA": self.schema, **env}
        return self.procs.start("-m", "leasework", *arguments, name=arguments[0], env=environ)

    def worker(self, *arguments: str, **env: str) -> Process:
        process = self.leasework("worker", "shop:app", *arguments, **env)
        process.wait_for("node_started")
        return process

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        text = statement.replace("leasework.", f"{self.schema}.")
        if self._connection is None:
            self._connection = psycopg.connect(self.dsn, autocommit=True, prepare_threshold=None)
        cursor = self._connection.execute(text.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        if self._connection:
            self._connection.close()

    def enqueue(self, task: str, **options: Any) -> str:
        request = json.dumps({"task": task, **options})
        return str(self.sql("select id from leasework.enqueue(%s::jsonb)", request)[0][0])

    def state(self, job: str) -> str:
        return str(self.sql("select state from leasework.jobs where id = %s", job)[0][0])

    def kinds(self) -> list[str]:
        return [kind for (kind,) in self.sql("select kind from leasework.events order by id")]


@pytest.fixture
def shop(procs, dsn, migrated) -> Iterator[Shop]:
    with closing(Shop(procs, dsn)) as shop:
        yield shop


def test_a_worker_does_jobs_and_stops_cleanly_on_sigterm(shop):
    worker = shop.worker()
    worker.wait_for("lease_acquired")
    job = shop.enqueue("mail", payload={"to": "ann"})
    until(lambda: shop.state(job) == "completed", what="the job's end")
    worker.kill(signal.SIGTERM)
    assert worker.wait(60) == 0
    worker.wait_for(r"worker_stopping worker=\S+ signal=SIGTERM")
    assert shop.kinds()[-2:] == ["lease_resigned", "node_stopped"]
    assert shop.sql("select node from leasework.leaders where name = 'shop'") == [(None,)]
    assert shop.sql("select count(*) from leasework.nodes") == [(0,)]


def test_the_end_of_its_terminal_stops_a_worker_cleanly_unless_it_ignores_that(shop):
    def start(hangup: str) -> Process:
        code = (
            f"import signal, sys; signal.signal(signal.SIGHUP, signal.{hangup}); "
            "sys.argv[1:] = ['worker', 'shop:app']; from leasework.cli import main; main()"
        )
        worker = shop.procs.start(code=code, env={"LEASEWORK_DSN": shop.dsn})
        worker.wait_for("node_started")
        worker.kill(signal.SIGHUP)
        return worker

    worker = start("SIG_DFL")
    assert worker.wait(60) == 0
    assert "node_stopped" in shop.kinds()  # and a leadership that it acquired meanwhile has ended
    worker = start("SIG_IGN")
    worker.kill(signal.SIGTERM)
    worker.wait_for("worker_stopping .*SIGTERM")
    assert worker.wait(60) == 0


def test_leadership_is_handed_over_at_a_clean_stop(shop):
    first = shop.worker()
    first.wait_for("lease_acquired")
    second = shop.worker()
    first.kill(signal.SIGINT)
    second.wait_for("lease_acquired", timeout=30)
    assert "lease_resigned" in shop.kinds(), "handed over, not left to expire"
    assert first.wait(60) == 0
    second.kill(signal.SIGTERM)
    assert second.wait(60) == 0


@pytest.mark.parametrize("form", ["text", "json"])
def test_every_log_line_of_a_worker_names_it(shop, form):
    worker = shop.worker("--log", form)
    job = shop.enqueue("mail")
    until(lambda: shop.state(job) == "completed", what="the job's end")
    worker.kill(signal.SIGTERM)
    assert worker.wait(60) == 0
    ((worker_id,),) = shop.sql("select worker_id from leasework.events where kind = 'node_started'")
    lines = worker.output.splitlines()
    assert any("sending to x" in line for line in lines), worker.output
    if form == "json":
        assert {json.loads(line)["worker_id"] for line in lines} == {worker_id}
    else:
        assert all(line.count(f"worker={worker_id}") == 1 for line in lines), worker.output


def test_no_log_line_or_command_output_holds_the_password(shop):
    shop.dsn = make_conninfo(shop.dsn, password="hunter2")
    worker = shop.worker("--log", "json")
    worker.kill(signal.SIGTERM)
    assert worker.wait(60) == 0
    for process in (worker, shop.leasework("status"), shop.leasework("nodes", "--json")):
        process.wait(60)
        assert "hunter2" not in process.output


def test_a_second_signal_ends_a_worker_at_once_even_with_a_blocked_loop(shop):
    worker = shop.worker()
    shop.enqueue("block")
    worker.wait_for("^blocking")
    worker.kill(signal.SIGTERM)
    worker.kill(signal.SIGINT)
    assert worker.wait(60) in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    worker.wait_for("second signal: exiting at once")


def test_a_second_signal_ends_a_worker_whose_output_nobody_reads_any_more(shop):
    worker = shop.procs.start(code=PIPED, env={"LEASEWORK_DSN": shop.dsn})
    worker.wait_for("^piped")
    shop.enqueue("block")
    until(lambda: shop.sql("select 1 from leasework.jobs where state = 'running'"))
    worker.kill(signal.SIGTERM)
    assert worker.wait(60) == 0, "it has seen its child end"


@pytest.mark.parametrize(
    "task", ["stuck", "swallows", "in_the_loops_pool", "in_c_in_the_loops_pool"]
)
def test_a_handler_that_never_ends_does_not_keep_a_worker(shop, task):
    """A thread, a coroutine that swallows its cancel, and a thread of the loop's pool."""
    worker = shop.worker(LEASEWORK_GRACE="0.1")
    shop.enqueue(task)
    worker.wait_for("^stuck")
    worker.kill(signal.SIGTERM)
    assert worker.wait(30) == 0
    assert "node_stopped" in shop.kinds()
    assert (shop.procs.folder / "last-words").exists(), "what the application leaves at its end"


def test_a_worker_under_a_parent_stops_cleanly_however_many_signals_come(shop):
    """Ctrl-C and an init system reach the whole group; the parent then sends its own SIGTERM."""
    mine = f"01890a5d-ac96-774b-bcce-b302099a8057:{os.getpid()}"
    worker = shop.worker(**{ASSIGNED_NODE: mine})
    worker.kill(signal.SIGINT)
    job = shop.enqueue("mail")
    until(lambda: shop.state(job) == "completed", what="the job's end: Ctrl-C is for its parent")
    assert "worker_stopping" not in worker.output
    for number in (signal.SIGTERM, signal.SIGTERM):
        worker.kill(number)
    assert worker.wait(60) == 0
    assert "node_stopped" in shop.kinds()
    ((node,),) = shop.sql("select distinct node from leasework.events where node is not null")
    assert str(node) == mine.partition(":")[0]


def test_queues_and_slots_are_chosen(shop):
    shop.worker("--queue", "mail=7", "-q", "slow=1")
    assert shop.sql("select queues from leasework.nodes") == [({"mail": 7, "slow": 1},)]
    job, other = shop.enqueue("mail", queue="mail"), shop.enqueue("mail")
    until(lambda: shop.state(job) == "completed", what="the job's end")
    assert shop.state(other) == "available"


def test_a_worker_that_does_not_execute_leads_and_runs_nothing(shop):
    leader = shop.worker("--no-execute")
    leader.wait_for("lease_acquired")
    assert shop.sql("select executes from leasework.nodes") == [(False,)]
    later = shop.enqueue("mail", run_in=0.2)
    until(lambda: shop.state(later) == "available", what="the leader to make it available")
    assert shop.sql("select attempt from leasework.jobs") == [(0,)]


def test_an_app_may_come_from_a_function_and_the_options_win(shop):
    process = shop.leasework(
        "worker",
        "shop:make",
        f"--dsn={shop.dsn}",
        f"--schema={shop.schema}",
        LEASEWORK_DSN="host=nowhere.invalid",
        LEASEWORK_SCHEMA="nowhere",
    )
    process.wait_for("node_started")


@pytest.fixture
def other(procs, dsn) -> Iterator[Shop]:
    with closing(Shop(procs, dsn, schema="other")) as shop:
        yield shop


def test_another_schema_name_works_for_apply_worker_and_jobs(other):
    assert other.leasework("schema", "apply").wait(30) == 0
    worker = other.worker()
    worker.wait_for("listen_works|listen_lost .*pooler")
    job = other.enqueue("mail")
    until(lambda: other.state(job) == "completed", what="the job's end")
    listed = other.leasework("jobs", "--json", "--schema", "other", LEASEWORK_SCHEMA="leasework")
    assert listed.wait(60) == 0
    assert [row["id"] for row in json.loads(listed.output)] == [job]
    worker.kill(signal.SIGTERM)
    assert worker.wait(60) == 0


# -- what a worker says when it cannot start ------------------------------------------------------
def last_line(process: Process) -> str:
    lines = process.output.splitlines()
    assert not any("leasework/cli" in line for line in lines), process.output
    return lines[-1]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("shp:app", "there is no module 'shp'"),
        ("shop:apq", "Did you mean 'app'?"),
        ("json:dumps", ""),
        ("shop.py:app", "Write shop:app"),
    ],
)
def test_a_wrong_target_ends_a_worker_with_one_line(shop, target, words):
    process = shop.leasework("worker", target)
    assert process.wait(60) == 1
    assert last_line(process).startswith("leasework: ") and words in last_line(process)


def test_a_worker_that_cannot_start_ends_although_the_application_has_a_thread(shop):
    (shop.procs.folder / "threaded.py").write_text(
        "import threading\nfrom shop import app\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
    )
    process = shop.leasework("worker", "threaded:app", LEASEWORK_SCHEMA="nowhere")
    assert process.wait(30) == 1
    assert "Run: leasework schema apply" in last_line(process)


def test_a_worker_obeys_a_signal_while_it_starts(shop):
    (shop.procs.folder / "slow.py").write_text(
        "import asyncio\nfrom contextlib import asynccontextmanager\n"
        "from leasework import App\n"
        "@asynccontextmanager\n"
        "async def lifespan(app):\n"
        "    print('connecting', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "    yield\n"
        "app = App(lifespan=lifespan)\n"
        "@app.task\nasync def one(): ...\n"
    )
    process = shop.leasework("worker", "slow:app")
    process.wait_for("^connecting")
    process.kill(signal.SIGTERM)
    assert process.wait(30) == 0
    assert "Traceback" not in process.output


def test_a_worker_without_a_schema_says_what_to_run(procs, dsn):
    process = Shop(procs, dsn).leasework("worker", "shop:app")
    assert process.wait(60) == 1
    assert "Run: leasework schema apply" in last_line(process)


def test_a_worker_whose_code_is_wrong_shows_the_code(shop):
    Path(shop.procs.folder / "bad.py").write_text(
        "from leasework import App\napp = App()\n"
        "@app.task()\ndef one(): ...\n"
        "@app.task(name='bad.one')\ndef two(): ...\n"
    )
    process = shop.leasework("worker", "bad:app")
    assert process.wait(60) == 1
    assert "two tasks are named 'bad.one'" in last_line(process)


def test_a_worker_that_cannot_reach_the_database_gives_up_with_its_words(shop):
    process = shop.leasework(
        "worker",
        "shop:app",
        LEASEWORK_DSN="postgresql://bob:hunter2@127.0.0.1:1/x",
        LEASEWORK_CALL_TIMEOUT="0.5",
    )
    assert process.wait(60) == 1
    assert "the database did not answer" in last_line(process)
    assert "hunter2" not in process.output
