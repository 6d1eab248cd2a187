"""What handlers do to their worker, and what comes of their jobs and of their neighbours."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from tests.e2e.test_cli_worker import Shop
from tests.support.procs import Process
from tests.support.wait import until

pytestmark = pytest.mark.timeout(240)

Open = Callable[[str], Shop]


@pytest.fixture
def opened(procs, dsn, migrated) -> Iterator[Open]:
    """``opened(code)``: a shop whose application is ``code``."""

    with ExitStack() as stack:

        def opens(code: str) -> Shop:
            shop = stack.enter_context(closing(Shop(procs, dsn)))
            (procs.folder / "shop.py").write_text(code)
            return shop

        yield opens


def ended(shop: Shop, jobs: list[str], seconds: float = 60.0) -> list[str]:
    """Their states, once all of them have finished."""
    over = ("completed", "discarded", "cancelled", "quarantined")

    def states() -> list[str] | None:
        found = [shop.state(job) for job in jobs]
        return found if all(state in over for state in found) else None

    found = until(states, seconds, "the end of all jobs")
    assert found
    return found


def stops_cleanly(worker: Process) -> None:
    worker.kill(signal.SIGTERM)
    assert worker.wait(60) == 0


LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
POISONED = """
import asyncio, os, pathlib, signal, sys
from leasework import App, Backoff

if os.environ["LOOP"] == "uvloop":
    import uvloop
    uvloop.install()
app = App(name="shop")
journal = pathlib.Path(__file__).with_name("journal")
again = Backoff(base=0.01, longest=0.01)

def note(what: str) -> None:
    with journal.open("a") as file:
        file.write(f"{what} {os.getpid()}\\n")

@app.task(name="neighbour", backoff=again)
async def neighbour(n: int) -> int:
    note(f"begins {n}")
    while not journal.with_name("gate").exists():
        await asyncio.sleep(0.01)
    note(f"ends {n}")
    return n

@app.task(name="quick")
async def quick() -> None: ...

class Exits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

async def raises(error: BaseException) -> None:
    raise error

def exits() -> None:
    raise SystemExit(4)

@app.task(name="poison", backoff=again)
async def poison(how: str) -> None:
    note(how)
    loop = asyncio.get_running_loop()
    match how:
        case "interrupt":
            raise KeyboardInterrupt
        case "interrupt later":
            await asyncio.sleep(0.01)
            raise KeyboardInterrupt
        case "no words":
            raise Exits
        case "stop":
            loop.stop()
            await asyncio.sleep(0.01)
        case "exit in a task":
            await asyncio.create_task(raises(SystemExit(5)))
        case "interrupt in a task":
            asyncio.create_task(raises(KeyboardInterrupt()))
            await asyncio.sleep(0.05)
        case "exit in a callback":
            loop.call_soon(exits)
            await asyncio.sleep(0.05)
        case "cancel all":
            for task in asyncio.all_tasks():
                task.cancel()
            await asyncio.sleep(0.01)
        case "cancel all at once":
            for task in asyncio.all_tasks():
                task.cancel()

@app.task(name="forks")
async def forks(how: str) -> str:
    pid = os.fork()
    if pid:
        await asyncio.to_thread(os.waitpid, pid, 0)
        return "parent"
    return in_the_child(how)

@app.task(name="forks_in_a_thread")
def forks_in_a_thread(how: str) -> str:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return "parent"
    return in_the_child(how)

def in_the_child(how: str) -> str:
    note("child")
    match how:
        case "term":
            os.kill(os.getpid(), signal.SIGTERM)
    os._exit(3)
"""


class Neighbours:
    """Jobs that run while something happens to their worker."""

    def __init__(self, shop: Shop, count: int = 6) -> None:
        self.shop = shop
        self.count = count
        self.jobs = [shop.enqueue("neighbour", payload={"n": n}) for n in range(count)]
        until(lambda: len(self.noted("begins")) == count, 60, "all neighbours run")

    def noted(self, what: str) -> list[str]:
        journal = self.shop.procs.folder / "journal"
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [line for line in lines if line.startswith(what)]

    def end(self, pid: int) -> None:
        """All of them complete, in the process in which they began, and none begins again."""
        (self.shop.procs.folder / "gate").touch()
        assert set(ended(self.shop, self.jobs)) == {"completed"}
        for what in ("begins", "ends"):
            wanted = [f"{what} {n} {pid}" for n in range(self.count)]
            assert sorted(self.noted(what)) == wanted


@LOOPS
def test_what_ends_a_loop_ends_neither_the_worker_nor_the_neighbours(
    opened: Open, loop: str
) -> None:
    shop = opened(POISONED)
    worker = shop.worker(LOOP=loop)
    neighbours = Neighbours(shop)
    states = {}
    for how, state in {
        "interrupt": "discarded",
        "interrupt later": "discarded",
        "no words": "discarded",
        "stop": "completed",
        "exit in a task": "discarded",
        "interrupt in a task": "completed",
        "exit in a callback": "completed",
        "cancel all": "discarded",
        "cancel all at once": "completed",
    }.items():
        job = shop.enqueue("poison", payload={"how": how}, max_attempts=2)
        states[how] = ended(shop, [job])[0], len(neighbours.noted(f"{how} {worker.pid}"))
        assert states[how] == (state, 2 if state == "discarded" else 1), how
    assert worker.running
    assert shop.kinds().count("loop_stopped") >= 3
    neighbours.end(worker.pid)
    assert ended(shop, [shop.enqueue("quick")]) == ["completed"]
    stops_cleanly(worker)


def test_ctrl_c_still_stops_a_worker_whose_handlers_raise_keyboard_interrupts(
    opened: Open,
) -> None:
    shop = opened(POISONED)
    worker = shop.worker(LOOP="asyncio")
    job = shop.enqueue("poison", payload={"how": "interrupt"}, max_attempts=1)
    assert ended(shop, [job]) == ["discarded"]
    worker.kill(signal.SIGINT)
    assert worker.wait(60) == 0


FORKS = [
    ("forks", "exit"),
    ("forks", "term"),
    ("forks_in_a_thread", "exit"),
]


@LOOPS
def test_the_child_of_a_fork_ends_and_its_parent_goes_on(opened: Open, loop: str) -> None:
    shop = opened(POISONED)
    worker = shop.worker(LOOP=loop)
    neighbours = Neighbours(shop)
    jobs = [shop.enqueue(task, payload={"how": how}) for task, how in FORKS]
    assert ended(shop, jobs) == ["completed"] * len(jobs)
    results = shop.sql("select distinct result from leasework.jobs where task_name like 'forks%%'")
    assert results == [("parent",)]
    assert len(neighbours.noted("child")) == len(FORKS)
    neighbours.end(worker.pid)
    assert ended(shop, [shop.enqueue("quick")]) == ["completed"]
    stops_cleanly(worker)


CHOKED = """
import resource
from leasework import App

app = App(name="shop")
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

@app.task(name="choke")
async def choke() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))

@app.task(name="free")
async def free() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

@app.task(name="child", executor="process", max_attempts=1)
def child() -> str:
    return "done"
"""


def test_a_job_goes_back_uncounted_while_its_worker_can_start_no_process(opened: Open) -> None:
    shop = opened(CHOKED)
    worker = shop.worker()
    ended(shop, [shop.enqueue("choke")])
    jobs = [shop.enqueue("child") for _ in range(3)]
    went_back = "select count(distinct job_id) from leasework.attempt where outcome = 'no_process'"
    until(lambda: shop.sql(went_back) == [(3,)], 60, "all jobs went back")
    until(lambda: "cannot start" in said(shop, "status"), 60, "the problem in status")
    assert "no child process could be started" in said(shop, "jobs", "show", jobs[0])
    ended(shop, [shop.enqueue("free")])
    assert ended(shop, jobs) == ["completed"] * 3
    assert shop.sql("select distinct attempt from leasework.jobs where task_name = 'child'") == [
        (1,)
    ]
    assert shop.kinds().count("process_not_started") == 1
    until(lambda: "cannot start" not in said(shop, "status"), 60, "the end of the problem")
    stops_cleanly(worker)


def said(shop: Shop, *command: str) -> str:
    process = shop.leasework(*command)
    process.wait(60)
    return process.output


THREADS = """
import pathlib, threading, time
from leasework import App, Cancel

app = App(name="shop", grace=0.5)
journal = pathlib.Path(__file__).with_name("journal")

def note(what: str) -> None:
    with journal.open("a") as file:
        file.write(what + "\\n")

@app.task(name="progresses")
def progresses(ctx) -> None:
    note("progresses")
    while True:
        ctx.progress(0.5, "half")
        time.sleep(0.01)

@app.task(name="wraps")
def wraps(ctx) -> None:
    note("wraps")
    try:
        while True:
            ctx.progress(0.5, "half")
            time.sleep(0.01)
    except Exception as error:
        raise RuntimeError("the export was aborted") from error

@app.task(name="looks")
def looks(ctx) -> None:
    note("looks")
    while not ctx.cancelled:
        time.sleep(0.01)

@app.task(name="cancels_itself")
def cancels_itself(ctx):
    note("cancels_itself")
    while not ctx.cancelled:
        time.sleep(0.01)
    return Cancel("it was cancelled, I think")

@app.task(name="never_looks")
def never_looks() -> None:
    note("never_looks")
    while not journal.with_name("gate").exists():
        time.sleep(0.01)

@app.task(name="finishes")
def finishes(ctx) -> str:
    note("finishes")
    while not ctx.cancelled:
        time.sleep(0.01)
    return "all done"
"""
STOPPED = ["progresses", "looks", "cancels_itself"]


def begun(shop: Shop, tasks: list[str]) -> dict[str, str]:
    """Jobs of these tasks, once their handlers run."""
    journal = shop.procs.folder / "journal"
    journal.write_text("")
    jobs = {task: shop.enqueue(task) for task in tasks}
    until(lambda: len(journal.read_text().split()) == len(tasks), 60, "all of them run")
    return jobs


def test_a_handler_in_a_thread_is_cancelled_and_its_end_is_recorded_as_it_was(
    opened: Open,
) -> None:
    shop = opened(THREADS)
    worker = shop.worker()
    jobs = begun(shop, [*STOPPED, "never_looks", "finishes"])
    for job in jobs.values():
        cancel = shop.leasework("jobs", "cancel", job, "--reason", "wrong customer", "--yes")
        assert cancel.wait(60) == 0, cancel.output
    (shop.procs.folder / "gate").touch()
    ended(shop, list(jobs.values()))
    found = dict(shop.sql("select task_name, state || ': ' || reason from leasework.jobs"))
    told = {task: "cancelled: wrong customer; the worker ended it" for task in STOPPED}
    ran = dict.fromkeys(["never_looks", "finishes"], "completed: wrong customer; it ran to its end")
    assert found == told | ran
    assert "wrong customer" in said(shop, "jobs", "show", jobs["looks"])
    stops_cleanly(worker)


def test_a_handler_in_a_thread_that_its_workers_stop_ends_runs_again(opened: Open) -> None:
    shop = opened(THREADS)
    worker = shop.worker()
    jobs = begun(shop, [*STOPPED, "wraps", "finishes"])
    stops_cleanly(worker)
    found = dict(shop.sql("select task_name, state from leasework.jobs"))
    assert found["finishes"] == "completed"
    assert {found[task] for task in (*STOPPED, "wraps")} <= {"scheduled", "available"}, found
    attempts = "select distinct attempt from leasework.jobs where task_name <> 'finishes'"
    assert shop.sql(attempts) == [(0,)], "no attempt was counted"
    assert len(jobs) == 5
