"""One claim for all queues of a node."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from leasework import App
from leasework.config import Limits, Polling
from leasework.store.store import Store
from tests.support.wait import until_async

QUEUES = {f"q{number:02}": 2 for number in range(50)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The limits of each claim."""
    asked: list[dict[str, int]] = []
    claim = Store.claim

    async def noted(
        self: Store, node: Any, epoch: int, limits: Mapping[str, int], *rest: Any
    ) -> Any:
        asked.append(dict(limits))
        return await claim(self, node, epoch, limits, *rest)

    monkeypatch.setattr(Store, "claim", noted)
    return asked


async def test_jobs_of_many_queues_come_by_one_claim(app: App, asked: list[dict[str, int]]) -> None:
    ran: list[str] = []

    @app.task()
    async def work(of: str) -> None:
        ran.append(of)

    await app.enqueue_many([work.using(queue=queue).job(of=queue) for queue in QUEUES])
    async with app.node(queues=QUEUES):
        await until_async(lambda: len(ran) == len(QUEUES), 30)
        assert asked[0] == QUEUES
        # once more, when it has said that all of them sleep
        await until_async(lambda: asked.count(QUEUES) >= 2, 30)
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


# -- where nothing but the test wakes a node -------------------------------------------------------
@pytest.fixture
async def alone(migrated: str) -> AsyncIterator[App]:
    """It neither listens nor polls."""
    app = App(migrated, listen=False, polling=Polling(listening=3600.0, blind=3600.0))
    yield app
    await app.close()


async def all_sleep(sql: Any, count: int) -> None:
    sleeping = "select 1 from leasework.node where cardinality(sleeping) = %(count)s"
    await until_async(lambda: sql(sleeping, {"count": count}), 30)


async def test_a_claim_of_many_queues_takes_one_batch_and_each_has_its_turn(
    alone: App, sql: Any, asked: list[dict[str, int]]
) -> None:
    ran: list[int] = []

    @alone.task()
    async def work(n: int) -> None:
        ran.append(n)

    many = {f"q{number}": Limits.batch_rows for number in range(3)}
    async with alone.node(queues=many) as node:
        await all_sleep(sql, len(many))
        await alone.enqueue_many([work.using(queue=f"q{n % 3}").job(n=n) for n in range(60)])
        node._producer.look()
        await until_async(lambda: len(ran) == 60, 30)
    assert all(sum(limits.values()) <= Limits.batch_rows for limits in asked)


async def test_many_busy_queues_take_turns_and_few_of_them_share_a_claim(
    alone: App, sql: Any, asked: list[dict[str, int]]
) -> None:
    ran: list[int] = []

    @alone.task()
    async def work(n: int) -> None:
        ran.append(n)

    many = {f"q{number}": Limits.batch_rows for number in range(100)}
    await alone.enqueue_many([work.using(queue=f"q{n % 100}").job(n=n) for n in range(4000)])
    async with alone.node(queues=many):
        await until_async(lambda: len(ran) == 4000, 60)
    assert all(sum(limits.values()) <= Limits.batch_rows for limits in asked)
    looks = Counter(queue for limits in asked for queue in limits)
    assert len(looks) == 100, "each has its turn"
    assert looks.total() < 500, "five jobs of each queue a claim would be 800 looks"


async def test_a_wake_up_during_a_claim_is_followed_by_another_claim(
    alone: App, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job comes when the claim has looked, and the wake-up before it is answered."""

    @alone.task()
    async def work() -> str:
        return "done"

    claim, late, asleep = Store.claim, [], False

    async def slow(self: Store, *given: Any) -> Any:
        found = await claim(self, *given)
        if asleep and not late:
            late.append(await work.enqueue())
            node._producer.look("default")
        return found

    monkeypatch.setattr(Store, "claim", slow)
    async with alone.node(queues={"default": 1}) as node:
        await all_sleep(sql, 1)
        asleep = True
        node._producer.look("default")
        await until_async(lambda: late, 30)
        assert await late[0].wait(30) == "done"


async def test_a_poll_is_one_claim_however_many_slots_the_queues_have(
    alone: App, sql: Any, asked: list[dict[str, int]]
) -> None:
    many = {f"q{number:03}": 100 for number in range(300)}
    async with alone.node(queues=many) as node:
        await all_sleep(sql, len(many))
        before = len(asked)
        node._producer.look()
        await until_async(lambda: len(asked) > before, 30)
    assert asked[before].keys() == many.keys()
    assert sum(asked[before].values()) <= Limits.batch_rows
