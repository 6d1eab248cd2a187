"""From a claim to the start of its handler: the lease is asked at each start, however late."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from leasework.config import Settings
from leasework.env import Env
from leasework.jobs.attempt import Attempts
from leasework.jobs.executor import Executor, LocalQueue
from leasework.jobs.failed_starts import Starts
from leasework.jobs.running import Claim, Running
from leasework.jobs.tasks import Registry, TaskOptions
from leasework.loops.service import ServiceContext
from leasework.model.job import ClaimedJob
from leasework.model.outcome import Complete
from tests.support.wait import until_async

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE = uuid4()


class Hands:
    """An executor whose surroundings are this object."""

    def __init__(self) -> None:
        self.valid = True
        self.ran: list[str] = []
        self.outcomes: dict[str, Any] = {}
        self.gate = threading.Event()
        self.open = asyncio.Event()
        registry = Registry()
        for function in (self.hang, self.run, self.wait):
            registry.add(function.__name__, function, TaskOptions())
        stands: Any = self
        context = ServiceContext(Settings(), Env(), self.emit, stands, stands)
        starts = Starts(Env(), self.emit)
        self.attempts = Attempts(context, registry, stands, lambda: stands, stands, 4, starts)
        self.executor = Executor(context, Running(), stands, lambda: stands, self.attempts)

    def covers(self, *claim: Any) -> bool:
        return self.valid

    def has_room(self, running: Any) -> bool:
        return True

    # -- handlers --------------------------------------------------------------------------------
    def hang(self, name: str) -> None:
        self.ran.append(name)
        self.gate.wait(60)

    def run(self, name: str) -> None:
        self.ran.append(name)

    async def wait(self, name: str) -> None:
        self.ran.append(name)
        await self.open.wait()

    # -- around ----------------------------------------------------------------------------------
    def emit(self, kind: str, **fields: Any) -> None: ...

    def put(self, claim: Claim, outcome: Any, ended: float) -> None:
        self.outcomes[claim.job.payload["name"]] = outcome

    async def start(self, *ids: Any) -> bool:
        return True

    def queue(self, name: str, slots: int) -> LocalQueue:
        self.executor.queues[name] = LocalQueue(name, slots)
        return self.executor.queues[name]

    def submit(self, queue: LocalQueue, task: str, name: str, crashes: int = 0) -> Claim:
        job = ClaimedJob(
            uuid4(), task, queue.name, {"name": name}, 0, 1, 5, crashes, len(name) + 1, None, None,
            NOW, True, None,
        )  # fmt: skip
        claim = Claim(job, NODE)
        self.executor.submit(queue, [claim])
        return claim


@pytest.fixture
async def hands() -> AsyncIterator[Hands]:
    hands = Hands()
    yield hands
    hands.gate.set()
    hands.open.set()
    await hands.executor.wait_idle(10)
    hands.attempts.close()


async def test_a_hanging_thread_of_one_queue_holds_up_no_other_queue(hands):
    one, two = hands.queue("one", 1), hands.queue("two", 1)
    hands.submit(one, "hang", "hanging")
    await until_async(lambda: hands.ran == ["hanging"])
    hands.submit(two, "run", "other")
    await until_async(lambda: isinstance(hands.outcomes.get("other"), Complete))


async def test_a_suspect_that_waits_to_run_alone_does_not_start_without_the_lease(hands):
    queue = hands.queue("one", 5)
    hands.submit(queue, "wait", "neighbour")
    hands.submit(queue, "wait", "suspect", crashes=2)
    await until_async(lambda: hands.ran == ["neighbour"])
    hands.valid = False
    hands.open.set()
    assert await hands.executor.wait_idle(10)
    assert hands.ran == ["neighbour"]
    hands.valid = True
    hands.executor.pump(queue)
    await until_async(lambda: hands.ran == ["neighbour", "suspect"])


async def test_nothing_starts_beside_a_suspect(hands):
    queue, other = hands.queue("one", 5), hands.queue("two", 5)
    hands.submit(queue, "wait", "suspect", crashes=2)
    hands.submit(queue, "wait", "behind")
    hands.submit(other, "wait", "beside")
    await until_async(lambda: hands.ran == ["suspect"])
    hands.open.set()
    await until_async(lambda: sorted(hands.ran) == ["behind", "beside", "suspect"])
