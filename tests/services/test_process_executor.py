"""Handlers in child processes: real children, their ends, and what the worker makes of them."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from leasework.config import Limits, Settings
from leasework.env import Env
from leasework.errors import Unavailable
from leasework.jobs import process
from leasework.jobs.attempt import Attempts
from leasework.jobs.executor import Executor, LocalQueue
from leasework.jobs.failed_starts import Starts
from leasework.jobs.process import ProcessPool
from leasework.jobs.running import Claim, Running
from leasework.jobs.tasks import Registry, TaskOptions
from leasework.loops.service import ServiceContext
from leasework.model.job import ClaimedJob
from leasework.model.outcome import (
    Cancel,
    Complete,
    Discard,
    Fail,
    Outcome,
    Snooze,
    Stopped,
    Unable,
)
from leasework.tuning import Tuning
from tests.services import process_handlers as handlers, process_handlers_app as app_handlers
from tests.support.wait import until, until_async

NODE = UUID("018f0000-0000-7000-8000-000000000001")
DUE = datetime(2024, 3, 1, 12, 30, tzinfo=UTC)


def dead(pid: int) -> bool:
    """Gone, or a zombie that its parent has not looked at."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def busy_pids(pool: ProcessPool) -> list[int]:
    """The children that run a job now."""
    return [child.pid for child in list(pool._busy)]


def idle_pids(pool: ProcessPool) -> list[int]:
    """The children that wait for a job."""
    return [child.pid for child in pool._idle if not child.ended.done()]


class Bench:
    """An executor over a pool, with everything else left out."""

    def __init__(self, slots: int = 2, **limits: int) -> None:
        self.progressed: list[tuple[float, str | None]] = []
        self.progress_answer: bool | Exception | None = False
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._outcomes: dict[UUID, Outcome] = {}
        env, self._registry = Env(), Registry()
        self.starts = Starts(env, self._emit)
        nobody: Any = SimpleNamespace(progress=self._progress)
        context = ServiceContext(Settings(limits=Limits(**limits)), env, self._emit, nobody, nobody)
        self.pool = ProcessPool(context, slots, self.starts, lambda: "worker-7")
        around: Any = SimpleNamespace(
            put=lambda claim, outcome, ended: self._outcomes.update({claim.job.id: outcome}),
            has_room=lambda running: True,
            covers=lambda *claim: True,
        )
        self.attempts = Attempts(
            context, self._registry, nobody, lambda: around, self.pool.run, slots, self.starts
        )
        self.executor = Executor(context, Running(), around, lambda: around, self.attempts)
        self.queue = LocalQueue("default", 100)
        self.executor.queues = {"default": self.queue}

    def _emit(self, name: str, **fields: Any) -> None:
        self.events.append((name, fields))

    async def _progress(
        self, node: UUID, job: UUID, token: int, share: float, note: str | None
    ) -> bool | None:
        assert (node, token) == (NODE, 41)
        if isinstance(self.progress_answer, Exception):
            raise self.progress_answer
        self.progressed.append((share, note))
        return self.progress_answer

    def start(self, function: Any, timeout: float | None = None, **payload: Any) -> Claim:
        function = getattr(function, "function", function)
        function = getattr(function, "function", function)
        name = f"{function.__module__}.{function.__qualname__}"
        if self._registry.find(name) is None:
            self._registry.add(name, function, TaskOptions(executor="process"))
        job = ClaimedJob(
            id=uuid4(), task=name, queue="default", payload=payload, priority=0, attempt=3,
            max_attempts=5, crashes=0, claim_token=41, timeout=timeout, requeue_after=None,
            scheduled_for=DUE, history=True, schedule="nightly",
        )  # fmt: skip
        claim = Claim(job, NODE)
        self.executor.submit(self.queue, [claim])
        return claim

    async def outcome(self, claim: Claim) -> Outcome:
        return await until_async(lambda: self._outcomes.get(claim.job.id), 30, "an outcome")

    async def run(self, function: Any, timeout: float | None = None, **payload: Any) -> Outcome:
        return await self.outcome(self.start(function, timeout, **payload))

    async def hang(
        self, file: Path, function: Any = handlers.hang, timeout: float | None = None
    ) -> tuple[Claim, int]:
        """A job that hangs, once it does: its claim and the child's pid."""
        claim = self.start(function, timeout, file=str(file))
        pid = int(await until_async(file.read_text, 30, ignoring=(FileNotFoundError,)))
        return claim, pid

    async def pid(self) -> int:
        outcome = await self.run(handlers.pid)
        assert isinstance(outcome, Complete) and outcome.result
        return int(outcome.result)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.pool.close()
    assert await made.executor.wait_idle(10)


def failure(outcome: Outcome) -> str:
    assert isinstance(outcome, Fail), outcome
    return outcome.error


# -- outcomes ------------------------------------------------------------------------------------
@pytest.mark.parametrize("function", [handlers.add, handlers.add_async])
async def test_a_handler_gets_its_arguments_and_its_result_comes_back(bench, function):
    assert await bench.run(function, a=2, b=40) == Complete("42")


@pytest.mark.parametrize(
    ("function", "outcome"),
    [
        (handlers.nothing, Complete(None)),
        (handlers.snooze, Snooze(42.5)),
        (handlers.cancel, Cancel("not wanted")),
        (handlers.discard, Discard("hopeless")),
    ],
)
async def test_outcomes_that_are_returned_come_back_as_they_are(bench, function, outcome):
    assert await bench.run(function) == outcome


async def test_an_exception_becomes_its_text_and_the_handlers_own_frames(bench):
    for function, says in ((handlers.fail, "there is no such "), (handlers.fail_async, "neither")):
        failed = await bench.run(function)
        assert isinstance(failed, Fail) and failed.error.startswith(f"LookupError: {says}")
        assert failed.traceback and f"in {function.__name__}\n" in failed.traceback
        assert "\n" not in failed.error and "process_child.py" not in failed.traceback


async def test_a_handler_that_exits_fails_and_its_child_goes_on(bench):
    before = await bench.pid()
    assert failure(await bench.run(handlers.leave, code=3)).startswith("SystemExit: 3")
    assert await bench.pid() == before


async def test_a_result_up_to_the_limit_passes_and_a_larger_one_discards_the_job(bench):
    outcome = await bench.run(handlers.text_of, count=150_000)  # escaped: 900 kB of JSON
    assert isinstance(outcome, Complete) and outcome.result
    assert len(outcome.result.encode()) > 850_000
    for function, arguments, why in (
        (handlers.text_of, {"count": 500_000}, "over the limit"),
        (handlers.not_json, {}, "not JSON"),
        (handlers.endless_reason, {}, "xxx"),
    ):
        outcome = await bench.run(function, **arguments)
        assert isinstance(outcome, Discard) and why in outcome.reason


async def test_large_arguments_pass(bench):
    outcome = await bench.run(handlers.add, a="ä" * 400_000, b="!")
    assert outcome == Complete('"' + "ä" * 400_000 + '!"')


async def test_what_a_handler_prints_does_no_harm(bench, capfd):
    assert await bench.run(handlers.noisy) == Complete('"quiet"')
    assert await bench.run(handlers.add, a=1, b=1) == Complete("2")
    out = capfd.readouterr().out
    assert "printed by a handler" in out and "written by a handler" in out


async def test_a_child_sees_the_same_world_as_its_worker(bench, monkeypatch, tmp_path):
    monkeypatch.setenv("A_VARIABLE", "carried over")
    monkeypatch.syspath_prepend(str(tmp_path / "only here"))
    monkeypatch.chdir(tmp_path)
    outcome = await bench.run(handlers.where)
    assert isinstance(outcome, Complete)
    # a shell starts what it puts into the background with SIGINT ignored
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert json.loads(outcome.result or "") == {
        "cwd": str(tmp_path),
        "path": sys.path,
        "argv": [],
        "variable": "carried over",
        "sigint": "ignored here",
        "programs": 0 if ignored else -signal.SIGINT,
    }


# -- the context ---------------------------------------------------------------------------------
async def test_the_context_knows_the_job(bench):
    claim = bench.start(handlers.facts)
    outcome = await bench.outcome(claim)
    assert isinstance(outcome, Complete)
    assert json.loads(outcome.result or "") == {
        "job": str(claim.job.id),
        "token": 41,
        "attempt": 3,
        "scheduled_for": DUE.isoformat(),
        "schedule": "nightly",
        "cancelled": False,
        "worker": "worker-7",
    }


@pytest.mark.parametrize("function", [handlers.report, handlers.report_async])
async def test_progress_goes_through_the_worker(bench, function):
    assert await bench.run(function, shares=[0.25, 0.5, 1]) == Complete('"done"')
    assert sorted(bench.progressed) == [(0.25, "at 0.25"), (0.5, "at 0.5"), (1.0, "at 1.0")]
    assert failure(await bench.run(function, shares=[2])).startswith("BadJob: progress takes")


@pytest.mark.parametrize("function", [handlers.report, handlers.report_async])
async def test_progress_that_cannot_be_recorded_does_not_stop_the_handler(bench, function):
    bench.progress_answer = Unavailable("no database")
    assert await bench.run(function, shares=[0.5]) == Complete('"done"')


async def test_progress_kills_the_child_if_the_job_was_taken_away(bench, tmp_path):
    bench.progress_answer = None
    claim, pid = await bench.hang(tmp_path / "pid", handlers.report_and_hang)
    await until_async(lambda: bench.executor.busy() == 0)
    assert claim.lost and dead(pid)
    assert [name for name, _ in bench.events] == ["job_lost"]


async def test_progress_brings_the_cancel_whose_signal_got_lost(bench, tmp_path):
    bench.progress_answer = True
    claim, pid = await bench.hang(tmp_path / "pid", handlers.report_and_hang)
    assert await bench.outcome(claim) == Cancel("the worker ended it")
    assert dead(pid)


async def test_a_thread_that_a_handler_left_behind_cannot_speak_for_the_next_job(bench):
    assert await bench.run(handlers.leave_a_thread) == Complete(None)
    assert await bench.run(handlers.hear_the_thread) == Complete('["LostClaim"]')
    assert bench.progressed == []


async def test_a_handler_can_lock_the_row_of_its_job_on_a_connection_of_its_own(bench, tmp_path):
    file = tmp_path / "connection"
    claim = bench.start(app_handlers.assert_mine, file=str(file))
    assert await bench.outcome(claim) == Complete(None)
    assert file.read_text() == f"mine {claim.job.id} {NODE} 41\n"


@pytest.mark.parametrize("task", [app_handlers.complete, app_handlers.complete_async])
async def test_a_handler_cannot_complete_its_job_and_is_told_what_to_do(bench, tmp_path, task):
    text = failure(await bench.run(task, file=str(tmp_path / "connection")))
    assert "ctx.complete does not work with executor='process'" in text
    assert "ctx.assert_mine" in text
    assert not (tmp_path / "connection").exists()


async def test_locking_the_row_without_an_app_says_what_to_do(bench, tmp_path):
    text = failure(await bench.run(handlers.without_app, file=str(tmp_path / "c")))
    assert "without_app is not a task of an App" in text


# -- being killed --------------------------------------------------------------------------------
@pytest.mark.parametrize("function", [handlers.hang, handlers.hang_async])
async def test_a_timeout_kills_the_child(bench, tmp_path, function):
    claim, pid = await bench.hang(tmp_path / "pid", function, timeout=0.5)
    outcome = await bench.outcome(claim)
    assert isinstance(outcome, Fail)
    assert outcome.error.startswith("ran longer than its timeout of 0.5 s.")
    assert dead(pid) and busy_pids(bench.pool) == []
    assert await bench.pid() != pid


@pytest.mark.parametrize("function", [handlers.hang, handlers.hang_async])
async def test_a_cancel_kills_the_child(bench, tmp_path, function):
    claim, pid = await bench.hang(tmp_path / "pid", function)
    assert busy_pids(bench.pool) == [pid]
    claim.end("cancel")
    claim.end("lost")  # the first reason stays, and the wait for the child's death as well
    assert await bench.outcome(claim) == Cancel("the worker ended it")
    assert dead(pid) and busy_pids(bench.pool) == []


async def test_a_stop_kills_the_child_and_the_job_runs_again(bench, tmp_path):
    claim, pid = await bench.hang(tmp_path / "pid")
    claim.end("stopping")
    assert await bench.outcome(claim) == Stopped()
    assert dead(pid)


async def test_a_lost_claim_kills_the_child_and_nothing_is_written(bench, tmp_path):
    claim, pid = await bench.hang(tmp_path / "pid")
    claim.end("lost")
    await until_async(lambda: bench.executor.busy() == 0)
    assert dead(pid)
    assert [name for name, _ in bench.events] == ["job_lost"]


async def test_a_job_that_waits_for_a_child_or_starts_one_can_be_stopped(tmp_path):
    bench = Bench(slots=1)
    first, pid = await bench.hang(tmp_path / "pid")
    second = bench.start(handlers.pid)
    await asyncio.sleep(0)
    second.end("cancel")
    assert isinstance(await bench.outcome(second), Cancel)
    assert busy_pids(bench.pool) == [pid]
    first.end("cancel")
    await bench.outcome(first)
    third = bench.start(handlers.pid)
    await until_async(lambda: busy_pids(bench.pool) != [], every=0.001)
    (starting,) = busy_pids(bench.pool)
    third.end("cancel")
    assert isinstance(await bench.outcome(third), Cancel)
    assert dead(starting)
    await bench.pool.close()


async def test_a_guard_can_kill_from_its_own_thread(bench, tmp_path):
    claim, pid = await bench.hang(tmp_path / "pid")
    await asyncio.to_thread(bench.pool.kill_all)
    assert await bench.outcome(claim) == Stopped()
    assert dead(pid)


async def test_close_kills_what_runs_and_ends_what_is_idle(tmp_path):
    bench = Bench()
    claim, busy = await bench.hang(tmp_path / "pid")
    idle = await bench.pid()
    await asyncio.wait_for(bench.pool.close(), 60)
    assert dead(busy) and dead(idle)
    assert "ended with signal 9 (SIGKILL)" in failure(await bench.outcome(claim))


async def test_sigterm_to_every_process_lets_the_job_finish(bench, tmp_path):
    """An init system may send it to all processes. The worker decides how long they may go on."""
    file = tmp_path / "pid"
    claim = bench.start(handlers.stay, file=str(file))
    await until_async(file.exists)
    os.kill(int(file.read_text()), signal.SIGTERM)
    file.unlink()
    assert await bench.outcome(claim) == Complete('"finished"')


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
async def test_what_is_for_the_worker_does_not_end_a_child_that_is_starting(
    bench, tmp_path, monkeypatch: pytest.MonkeyPatch, name: str
):
    """Init systems may signal every process."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import os, signal\nos.kill(os.getpid(), signal.{name})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert await bench.run(handlers.add, a=1, b=1) == Complete("2")


async def test_sigterm_ends_what_a_handler_starts(bench):
    assert await bench.run(handlers.end_others) == Complete("[-15]")
    assert await bench.run(handlers.end_copy_with_handler) == Complete("7")


# -- dying by itself -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("function", "payload", "how"),
    [
        (handlers.crash, {"number": signal.SIGSEGV}, "ended with signal 11 (SIGSEGV)"),
        (handlers.crash, {"number": signal.SIGUSR1}, "ended with signal 10 (SIGUSR1)"),
        (handlers.crash, {"number": 40}, "ended with signal 40"),
        (handlers.vanish, {"code": 3}, "ended with exit code 3"),
        (handlers.vanish, {"code": 0}, "ended with exit code 0"),
        (handlers.close_everything, {}, "closed its connection to the worker"),
    ],
)
async def test_a_child_that_dies_fails_its_job_and_the_worker_lives_on(
    bench, function, payload, how
):
    outcome = await bench.run(function, **payload)
    assert outcome == Fail(f"the child process {how} while it ran the job")
    assert busy_pids(bench.pool) == []
    assert await bench.run(handlers.add, a=1, b=1) == Complete("2")


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_copy_that_holds_the_socket_open_does_not_hide_the_death(bench, tmp_path, leaves):
    file = tmp_path / "copy"
    text = failure(await bench.run(handlers.fork_and_vanish, file=str(file), leaves=leaves))
    assert text == "the child process ended with exit code 3 while it ran the job"
    copy = int(file.read_text())
    if leaves:  # into a session of its own, so it lives on
        os.kill(copy, signal.SIGKILL)
    await until_async(lambda: dead(copy), 20, "the end of the copy")


async def test_a_job_whose_child_cannot_be_started_goes_back(bench, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    open_before = len(os.listdir("/proc/self/fd"))
    outcome = await bench.run(handlers.pid)
    assert isinstance(outcome, Unable) and "/no/such/python" in outcome.error
    assert bench.starts.trouble == outcome.error
    assert len(os.listdir("/proc/self/fd")) == open_before
    monkeypatch.undo()
    assert isinstance(await bench.run(handlers.pid), Complete)
    assert not bench.starts.trouble


async def test_a_child_that_dies_before_the_handler_says_so(bench, monkeypatch):
    monkeypatch.setattr(process, "_START", "raise SystemExit(5)")
    text = failure(await bench.run(handlers.pid))
    assert text == "the child process ended with exit code 5 before the handler began"


async def test_an_import_without_end_has_one(bench, monkeypatch):
    monkeypatch.setattr(Tuning, "child_load_seconds", 0.1)
    monkeypatch.setattr(process, "_START", "import signal; signal.pause()")
    text = failure(await bench.run(handlers.pid))
    assert text.startswith("the child process took longer than 0.1 s to import tests.services.")


async def test_a_job_whose_child_cannot_be_watched_goes_back(bench, monkeypatch):
    def refuses(*_: Any, **__: Any) -> Any:
        raise RuntimeError("can't start new thread")

    open_before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(process.threading.Thread, "start", refuses)
    outcome = await bench.run(handlers.pid)
    assert isinstance(outcome, Unable) and "can't start new thread" in outcome.error
    assert len(os.listdir("/proc/self/fd")) == open_before
    monkeypatch.undo()
    assert isinstance(await bench.run(handlers.pid), Complete)


# -- keeping children ----------------------------------------------------------------------------
async def test_a_child_is_used_again(bench):
    first = await bench.pid()
    assert await bench.pid() == first
    assert idle_pids(bench.pool) == [first]


async def test_there_are_never_more_children_than_slots(bench, monkeypatch):
    most: list[int] = []

    class Counted(process.ChildHandle):
        def __init__(self) -> None:
            most.append(len(bench.pool._busy) + 1)
            super().__init__()

    monkeypatch.setattr(process, "ChildHandle", Counted)
    pids = await asyncio.gather(*(bench.pid() for _ in range(6)))
    assert max(most) == 2 and len(set(pids)) <= 2


async def test_a_job_that_waits_for_a_child_runs_when_another_one_ends(bench, tmp_path):
    first, one = await bench.hang(tmp_path / "one")
    second, two = await bench.hang(tmp_path / "two")
    third = bench.start(handlers.pid)
    assert sorted(busy_pids(bench.pool)) == sorted([one, two])
    first.end("cancel")
    outcome = await bench.outcome(third)
    assert isinstance(outcome, Complete) and outcome.result not in (str(one), str(two))
    assert dead(one)
    second.end("cancel")


async def test_a_child_is_let_go_after_so_many_jobs(bench, monkeypatch):
    monkeypatch.setattr(Tuning, "jobs_per_child", 2)
    first = await bench.pid()
    assert await bench.pid() == first
    assert await bench.pid() != first
    await until_async(lambda: dead(first), what="the end of the old child")


async def test_an_idle_child_is_let_go(bench, monkeypatch):
    monkeypatch.setattr(Tuning, "child_idle_seconds", 0.1)
    pid = await bench.pid()
    await until_async(lambda: dead(pid) and not idle_pids(bench.pool), what="its end")
    assert await bench.pid() != pid


async def test_an_idle_child_that_died_costs_no_attempt(bench):
    pid = await bench.pid()
    os.kill(pid, signal.SIGKILL)
    assert await bench.pid() != pid  # at once: the worker may not know yet
    pid = await bench.pid()
    os.kill(pid, signal.SIGKILL)
    await until_async(lambda: idle_pids(bench.pool) == [])
    assert await bench.pid() != pid


# -- the worker's death --------------------------------------------------------------------------
WORKER = """
import asyncio
from tests.services import process_handlers as handlers
from tests.services.test_process_executor import Bench

async def main():
    bench = Bench()
    for function in (handlers.hang, handlers.hang_async):
        bench.start(function, file="stdout")
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_busy_children_die_with_their_worker(procs):
    worker = procs.start(code=WORKER, name="worker")
    worker.wait_for(r"child \d+", 60, count=2)
    pids = [int(line.split()[1]) for line in worker.output.splitlines() if "child" in line]
    assert len(pids) == 2 and not any(dead(pid) for pid in pids)
    worker.kill()  # it alone, not its group
    for pid in pids:
        until(functools.partial(dead, pid), what=f"the end of child {pid}")


def test_a_child_whose_worker_died_before_it_began_ends():
    """What PDEATHSIG alone cannot see: the parent's death before the child asks for it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        fd = str(theirs.fileno())
        command = [sys.executable, "-c", process._START, fd, "1", *sys.path]
        ended = subprocess.run(command, pass_fds=[theirs.fileno()], timeout=30, check=False)
    assert ended.returncode == 1
