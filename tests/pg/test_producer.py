"""One claim for all queues of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from leasehold import App
from leasehold.config import Limits
from leasehold.pg.stores.store import PgStore
from tests.support.wait import until_async

QUEUES = {f"q{number:02}": 2 for number in range(50)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The limits of each claim."""
    asked: list[dict[str, int]] = []
    claim = PgStore.claim

    async def noted(
        self: PgStore, node: Any, epoch: int, limits: Mapping[str, int], *rest: Any
    ) -> Any:
        asked.append(dict(limits))
        return await claim(self, node, epoch, limits, *rest)

    monkeypatch.setattr(PgStore, "claim", noted)
    return asked


async def test_jobs_of_many_queues_come_by_one_claim(app: App, asked: list[dict[str, int]]) -> None:
    ran: list[str] = []

    @app.task()
    async def work(of: str) -> None:
        ran.append(of)

    await app.enqueue_many([work.job(of=queue, queue=queue) for queue in QUEUES])
    async with app.node(queues=QUEUES):
        await until_async(lambda: len(ran) == len(QUEUES), 30)
        assert asked[0] == QUEUES
        # once more, when it has said that all of them sleep
        await until_async(lambda: asked.count(QUEUES) == 2, 30)
    assert sorted(ran) == sorted(QUEUES)
    assert len(asked) < 20, asked


async def test_a_queue_without_room_holds_up_no_other(app: App) -> None:
    go_on = asyncio.Event()
    quick = 0

    @app.task(queue="slow")
    async def waits() -> None:
        await go_on.wait()

    @app.task(queue="quick")
    async def counts() -> None:
        nonlocal quick
        quick += 1

    slow = await app.enqueue_many([waits.job() for _ in range(5)])
    async with app.node(queues={"slow": 1, "quick": 2}):
        for _ in range(5):
            before = quick
            await counts.enqueue()
            await until_async(lambda before=before: quick > before, 30)
        go_on.set()
        for job in slow:
            await job.wait(30)


async def test_a_claim_of_many_queues_takes_one_batch_and_each_has_its_turn(
    app: App, asked: list[dict[str, int]]
) -> None:
    ran: list[int] = []

    @app.task()
    async def work(n: int) -> None:
        ran.append(n)

    many = {f"q{number}": Limits.batch_rows for number in range(3)}
    jobs = [work.job(n=n, queue=f"q{n % 3}") for n in range(60)]
    await app.enqueue_many(jobs)
    async with app.node(queues=many):
        await until_async(lambda: len(ran) == 60, 30)
    assert all(sum(limits.values()) <= Limits.batch_rows for limits in asked)
    assert set().union(*asked) == set(many)
