"""How the executor runs jobs: no task for a handler that never waits, and nothing of one job in
the next."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from leasework.config import Settings
from leasework.env import Env
from leasework.errors import BadPayload, ReadOnlyServer
from leasework.jobs.attempt import Attempts
from leasework.jobs.executor import Executor, LocalQueue
from leasework.jobs.failed_starts import Starts
from leasework.jobs.running import Claim, Running
from leasework.jobs.tasks import Registry, TaskOptions
from leasework.loops.service import ServiceContext
from leasework.model.codec import ENCODED, opened, sealed
from leasework.model.job import ClaimedJob
from leasework.model.outcome import Cancel, Complete, Discard, Fail, Stopped, Unable
from leasework.tuning import Tuning
from tests.support.wait import forever, until, until_async

NODE = UUID(int=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MARK: ContextVar[str] = ContextVar("MARK", default="")


class Workshop:
    """An executor with one queue; its jobs are coroutine functions of a number."""

    def __init__(self) -> None:
        self.outcomes: dict[int, Any] = {}
        self.registry = Registry()
        stands: Any = self
        context = ServiceContext(Settings(), Env(), self.emit, stands, stands)
        starts = Starts(context.env, self.emit)
        self.attempts = Attempts(context, self.registry, stands, lambda: stands, stands, 4, starts)
        self.executor = Executor(context, Running(), stands, lambda: stands, self.attempts)
        self.queue = LocalQueue("default", 3)
        self.executor.queues["default"] = self.queue

    def emit(self, kind: str, **fields: Any) -> None: ...

    def covers(self, *claim: Any) -> bool:
        return True

    def has_room(self, running: Any) -> bool:
        return True

    def put(self, claim: Claim, outcome: Any, ended: float) -> None:
        self.outcomes[claim.job.payload["n"]] = outcome

    async def start(self, *mark: Any) -> bool:
        return True

    def submit(
        self,
        function: Any,
        numbers: range,
        crashes: int = 0,
        timeout: float | None = None,
        version: int = 1,
    ) -> list[Claim]:
        if self.registry.find(function.__name__) is None:
            self.registry.add(function.__name__, function, TaskOptions())
        claims = [
            Claim(
                ClaimedJob(uuid4(), function.__name__, "default", {"n": n}, 0, 1, 5, crashes, n,
                           timeout, None, NOW, True, None, version=version),
                NODE,
            )
            for n in numbers
        ]  # fmt: skip
        self.executor.submit(self.queue, claims)
        return claims

    async def done(self, count: int) -> None:
        await until_async(lambda: len(self.outcomes) == count, 30, f"{count} outcomes")


@pytest.fixture
def shop() -> Iterator[Workshop]:
    made = Workshop()
    yield made
    made.attempts.close()


async def test_handlers_that_never_wait_share_one_task(shop: Workshop) -> None:
    tasks: set[Any] = set()

    async def quick(n: int) -> None:
        tasks.add(asyncio.current_task())

    shop.submit(quick, range(500))
    await shop.done(500)
    assert len(tasks) == 1
    assert set(shop.outcomes.values()) == {Complete()}


async def test_what_a_handler_sets_in_its_context_is_not_seen_by_the_next(shop: Workshop) -> None:
    seen: list[str] = []

    async def marks(n: int) -> None:
        seen.append(MARK.get())
        MARK.set(f"job {n}")
        if n % 3 == 0:
            await asyncio.sleep(0)
        assert MARK.get() == f"job {n}"

    shop.submit(marks, range(30))
    await shop.done(30)
    assert seen == [""] * 30
    assert set(shop.outcomes.values()) == {Complete()}


async def test_what_a_handler_started_cannot_cancel_the_next_one(shop: Workshop) -> None:
    """Both wake up at once, and the handler ends first."""
    told = asyncio.Event()

    async def watch(parent: asyncio.Task[Any]) -> None:
        await told.wait()
        parent.cancel()

    async def watched(n: int) -> None:
        if n == 0:
            me = asyncio.current_task()
            assert me
            watches.append(asyncio.create_task(watch(me)))
            await told.wait()
            until(partial(later, time.perf_counter() + 2 * Tuning.stretch_seconds), 30)

    def later(moment: float) -> bool:
        return time.perf_counter() > moment

    watches: list[asyncio.Task[None]] = []
    shop.submit(watched, range(1))
    await until_async(lambda: watches)
    told.set()
    await shop.done(1)
    await watches[0]
    shop.submit(watched, range(1, 10))
    await shop.done(10)
    assert set(shop.outcomes.values()) == {Complete()}


async def test_a_start_that_the_server_refuses_is_tried_again(shop: Workshop) -> None:
    """As in a failover, where the first server that answers is a replica."""

    async def refused(*_: Any) -> bool:
        raise ReadOnlyServer("it is a replica")

    async def work(n: int) -> None:
        raise AssertionError("it was not started")

    shop.start = refused  # type: ignore[method-assign]
    shop.submit(work, range(1), crashes=1)
    await shop.done(1)
    assert isinstance(shop.outcomes[0], Unable)
    assert "it is a replica" in shop.outcomes[0].error


async def test_handlers_that_wait_run_side_by_side_up_to_the_slots(shop: Workshop) -> None:
    gate = asyncio.Event()
    inside: list[int] = []

    async def waits(n: int) -> None:
        inside.append(n)
        async with asyncio.timeout(30):
            await gate.wait()

    shop.submit(waits, range(7))
    await until_async(lambda: len(inside) == 3)
    await asyncio.sleep(0.01)
    assert inside == [0, 1, 2] and shop.executor.busy() == 3
    gate.set()
    await shop.done(7)
    assert shop.executor.busy() == 0 and not shop.queue.taking


async def test_the_event_loop_gets_its_turn_between_handlers_that_burn(shop: Workshop) -> None:
    turns = 0

    async def burns(n: int) -> None:
        end = time.monotonic() + 0.003
        while time.monotonic() < end:
            pass

    async def other() -> None:
        nonlocal turns
        while len(shop.outcomes) < 50:
            turns += 1
            await asyncio.sleep(0)

    shop.submit(burns, range(50))
    await other()
    assert turns >= 40


async def test_a_cancel_ends_its_job_and_not_the_next(shop: Workshop) -> None:
    inside = asyncio.Event()

    async def hangs(n: int) -> None:
        if n == 0:
            inside.set()
            await asyncio.Event().wait()

    first, *_ = shop.submit(hangs, range(20))
    await inside.wait()
    first.end("cancel")
    await shop.done(20)
    assert isinstance(shop.outcomes.pop(0), Cancel)
    assert set(shop.outcomes.values()) == {Complete()}


async def test_a_cancel_that_comes_before_its_claim_is_remembered_for_it_alone(
    shop: Workshop,
) -> None:
    ran: list[int] = []

    async def works(n: int) -> None:
        ran.append(n)

    running = shop.executor.running
    for token in (*range(2000, 3000), 1):  # the others' runs are over: they never come
        running.cancel(token)
    shop.submit(works, range(3))
    await shop.done(3)
    assert isinstance(shop.outcomes[1], Cancel) and ran == [0, 2]
    assert len(running._early) == 999 and len(running) == 3


async def test_a_handler_that_cancels_its_own_task_harms_nobody_else(shop: Workshop) -> None:
    async def suicidal(n: int) -> None:
        if n == 0:
            me = asyncio.current_task()
            assert me
            me.cancel()

    shop.submit(suicidal, range(20))
    await shop.done(20)
    assert set(shop.outcomes.values()) == {Complete()}


async def test_a_handler_may_fail_after_it_waited(shop: Workshop) -> None:
    async def fails(n: int) -> None:
        await asyncio.sleep(0)
        raise StopIteration("odd")

    shop.submit(fails, range(5))
    await shop.done(5)
    assert all(isinstance(outcome, Fail) for outcome in shop.outcomes.values())


async def test_while_a_suspect_has_the_node_nothing_starts_and_what_waits_can_be_given_back(
    shop: Workshop,
) -> None:
    gate = asyncio.Event()
    woken = 0

    def wake() -> None:
        nonlocal woken
        woken += 1

    async def waits(n: int) -> None:
        await gate.wait()

    shop.queue.on_room = wake
    shop.submit(waits, range(1), crashes=2)
    await until_async(lambda: shop.executor.busy() == 1)
    assert shop.executor.exclusive and woken
    others = shop.submit(waits, range(1, 5))
    await asyncio.sleep(0.01)
    assert shop.executor.busy() == 1
    given_back = shop.executor.take_waiting(shop.queue)
    assert given_back == [(claim.job.id, claim.job.claim_token) for claim in others]
    gate.set()
    await shop.done(1)
    assert not shop.executor.exclusive
    shop.submit(waits, range(1, 3))
    await shop.done(3)


def test_without_suspects_nothing_is_woken(shop: Workshop) -> None:
    """A halted node asks every few seconds, and would otherwise ask again at once."""
    woken: list[int] = []
    shop.queue.on_room = lambda: woken.append(1)
    shop.executor.put_off_suspects()
    assert woken == []


async def test_a_suspect_that_cannot_run_alone_goes_to_another_node_and_others_start_again(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    async def waits(n: int) -> None:
        await gate.wait()

    shop.submit(waits, range(1))
    await until_async(lambda: shop.executor.busy() == 1)
    shop.submit(waits, range(1, 2), crashes=2)
    shop.submit(waits, range(2, 3))
    await asyncio.sleep(0.01)
    shop.executor.put_off_suspects()
    assert shop.executor.exclusive and shop.executor.busy() == 1, "it has a while"
    monkeypatch.setattr(Tuning, "alone_seconds", 0.0)
    shop.executor.put_off_suspects()
    outcome = shop.outcomes[1]
    assert isinstance(outcome, Unable) and outcome.because == "not_alone"
    await until_async(lambda: shop.executor.busy() == 2)
    gate.set()
    await shop.done(3)


async def test_a_job_whose_thread_cannot_be_started_goes_back_and_never_runs(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    gate = threading.Event()

    def waits(n: int) -> None:
        ran.append(n)
        gate.wait(30)

    def refuses(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    shop.submit(waits, range(1))
    await until_async(lambda: ran == [0], 30, "the first job runs")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuses)
        shop.submit(waits, range(1, 2))
        await shop.done(1)
    assert shop.outcomes == {1: Unable("no thread could be started: can't start new thread")}
    gate.set()
    await shop.done(2)
    shop.submit(waits, range(2, 4))
    await shop.done(4)
    assert sorted(ran) == [0, 2, 3]


# -- handlers that make something else of their cancel ---------------------------------------------
async def wraps(n: int) -> None:
    try:
        await forever()
    except asyncio.CancelledError as error:
        raise RuntimeError("the export was aborted") from error


async def cleans_up_badly(n: int) -> None:
    async def child() -> None:
        try:
            await forever()
        finally:
            raise ValueError("the connection is closed")

    async with asyncio.TaskGroup() as group:
        group.create_task(child())


async def swallows(n: int) -> None:
    with suppress(asyncio.CancelledError):
        await forever()


async def finishes(n: int) -> str:
    with suppress(asyncio.CancelledError):
        await forever()
    return "done all the same"


@pytest.mark.parametrize("handler", [wraps, cleans_up_badly, swallows])
@pytest.mark.parametrize(("reason", "outcome"), [("stopping", Stopped), ("cancel", Cancel)])
async def test_a_stop_fails_no_job_whatever_its_handler_makes_of_it(
    shop: Workshop, handler: Any, reason: str, outcome: type
) -> None:
    [claim] = shop.submit(handler, range(1))
    await asyncio.sleep(0)
    claim.end(reason)
    await shop.done(1)
    assert isinstance(shop.outcomes[0], outcome)


@pytest.mark.parametrize("handler", [wraps, cleans_up_badly, swallows])
async def test_a_run_that_exceeds_its_timeout_fails_by_it_whatever_its_handler_makes_of_it(
    shop: Workshop, handler: Any
) -> None:
    shop.submit(handler, range(1), timeout=0.01)
    await shop.done(1)
    assert shop.outcomes[0] == Fail("ran longer than its timeout of 0.01 s.")


async def test_a_stop_is_no_timeout_even_if_the_handler_then_takes_too_long(
    shop: Workshop,
) -> None:
    async def cleans_up_slowly(n: int) -> None:
        with suppress(asyncio.CancelledError):
            await forever()
        with suppress(asyncio.CancelledError):
            await forever()

    [claim] = shop.submit(cleans_up_slowly, range(1), timeout=0.1)
    await asyncio.sleep(0)
    claim.end("stopping")
    await shop.done(1)
    assert shop.outcomes[0] == Stopped()


async def test_a_result_counts_that_a_handler_returns_in_spite_of_its_cancel(
    shop: Workshop,
) -> None:
    [stopped] = shop.submit(finishes, range(1))
    shop.submit(finishes, range(1, 2), timeout=0.01)
    await asyncio.sleep(0)
    stopped.end("stopping")
    await shop.done(2)
    assert set(shop.outcomes.values()) == {Complete('"done all the same"')}


# -- what is raised outside handlers ---------------------------------------------------------------
class Panic(BaseException):
    """As extensions written in Rust raise it."""


class Panics:
    def encode(self, data: bytes) -> bytes:
        raise Panic("no key")

    decode = encode


@pytest.mark.parametrize("error", [Panic("no"), SystemExit(3)])
async def test_an_upcast_that_ends_with_any_error_fails_its_job_alone(
    shop: Workshop, error: BaseException
) -> None:
    def up(arguments: Any) -> Any:
        raise error

    async def versioned(n: int) -> None: ...

    shop.registry.add("versioned", versioned, TaskOptions(version=2))
    shop.registry.get("versioned").add_upcast(1, up)
    shop.submit(versioned, range(1))
    shop.submit(versioned, range(1, 9), version=2)
    await shop.done(9)
    assert isinstance(shop.outcomes.pop(0), Fail)
    assert set(shop.outcomes.values()) == {Complete()}


async def test_a_codec_that_panics_loses_its_jobs_result_alone(shop: Workshop) -> None:
    async def returns(n: int) -> int:
        return n

    shop.registry.codec = Panics()
    shop.submit(returns, range(9))
    await shop.done(9)
    assert {type(outcome) for outcome in shop.outcomes.values()} == {Discard}


async def test_a_thread_that_starts_does_not_hide_that_processes_cannot() -> None:
    told: list[str] = []
    starts = Starts(Env(), lambda kind, **fields: told.append(fields["error"]))
    for _ in range(2):
        await starts.failed("process", "no descriptor")
        starts.succeeded("thread")
        assert starts.trouble == "no descriptor"
    assert told == ["no descriptor"]
    starts.succeeded("process")
    assert starts.trouble == ""


def test_a_panic_of_the_codec_is_a_payload_that_cannot_be_read() -> None:
    """So one such row does not hide the others of a list."""
    for call in (
        lambda: opened(Panics(), {ENCODED: "AA=="}),
        lambda: sealed(Panics(), "x", "{}", 9),
    ):
        with pytest.raises(BadPayload, match="no key"):
            call()
