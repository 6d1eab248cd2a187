"""``App(codec=…)`` encodes what is stored of arguments and results, wherever a handler runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from leasework import App
from leasework.errors import BadPayload, JobFailed
from leasework.model.job import Unreadable
from leasework.model.states import State
from leasework.testing import assert_enqueued
from tests.pg import sealed
from tests.support.wait import until_async

SECRETS = ("4000", "hunter2")


@pytest.fixture
async def shop(migrated: str) -> AsyncIterator[App]:
    sealed.app.configure(dsn=migrated)
    yield sealed.app
    await sealed.app.close()


def stored(dsn: str) -> str:
    """Everything that the tables of jobs hold, as text."""
    query = "select payload::text, result::text from leasework.jobs"
    with psycopg.connect(dsn) as connection:
        return repr(connection.execute(query).fetchall())


@pytest.mark.parametrize("name", ["in_loop", "in_thread", "in_process"])
async def test_the_database_sees_neither_arguments_nor_results(shop: App, name: str) -> None:
    task: Any = getattr(sealed, name)
    job = await task.enqueue(sealed.Card("4000"), secret="hunter2")
    assert not any(secret in stored(shop.settings.dsn) for secret in SECRETS)
    async with shop.node():
        assert await job.wait(60) == sealed.Card("4000hunter2")
    assert not any(secret in stored(shop.settings.dsn) for secret in SECRETS)
    record = await job.get()
    assert record.payload == {"card": {"number": "4000"}, "secret": "hunter2"}
    assert record.result == {"number": "4000hunter2"}
    assert (await assert_enqueued(shop, task, secret="hunter2")).id == job.id


async def test_an_application_without_the_codec_says_so(shop: App) -> None:
    job = await sealed.in_loop.enqueue(sealed.Card("4000"), secret="hunter2")
    other = App(shop.settings.dsn)
    record = await other.get(job.id)
    assert isinstance(record.payload, Unreadable) and "no codec" in str(record.payload)
    await other.close()


async def test_a_result_given_in_the_users_transaction_is_encoded(shop: App) -> None:
    job = await sealed.completes.enqueue(dsn=shop.settings.dsn)
    async with shop.node():
        assert await job.wait(60) == {"secret": "hunter2"}
    assert "hunter2" not in stored(shop.settings.dsn)


async def test_enqueues_in_a_transaction_and_in_bulk_are_encoded(shop: App) -> None:
    requests = [sealed.in_loop.job(sealed.Card("4000"), str(n)) for n in range(200)]
    async with await psycopg.AsyncConnection.connect(shop.settings.dsn) as connection:
        await shop.enqueue(requests[0], on=connection)
    await shop.enqueue_many(requests[1:])
    text = stored(shop.settings.dsn)
    assert text.count("$encoded") == 200 and "4000" not in text


async def test_jobs_from_before_the_codec_still_run(shop: App) -> None:
    with psycopg.connect(shop.settings.dsn) as connection:
        [found] = connection.execute(
            "select id from leasework.enqueue(%s)",
            [json.dumps({"task": "in_loop", "payload": {"card": {"number": "1"}, "secret": "2"}})],
        ).fetchall()
    async with shop.node():
        assert await (await shop.client()).wait(found[0], 60) == {"number": "12"}


async def test_arguments_that_cannot_be_decoded_are_kept_and_reported(shop: App) -> None:
    """By a worker without the codec, and by one with another key."""
    job = await sealed.in_loop.enqueue(sealed.Card("4000"), "hunter2")

    class Another:
        def encode(self, data: bytes) -> bytes:
            return data

        def decode(self, data: bytes) -> bytes:
            raise ValueError("wrong key")

    for codec, why in ((None, "has no codec"), (Another(), "ValueError: wrong key")):
        other = App(shop.settings.dsn, name="sealed", codec=codec)
        ran: list[str] = []

        @other.task(name="in_loop")
        async def in_loop(card: Any, secret: str, ran: list[str] = ran) -> None:
            ran.append(secret)

        async with other.node():

            async def told(other: App = other, why: str = why) -> bool:
                return why in ((await other.get(job.id)).last_error or "")

            await until_async(told, 30, why)
        record = await other.get(job.id)
        assert record.state is State.SCHEDULED and record.attempt == 0 and not ran
        if codec:
            assert isinstance(record.payload, Unreadable)
        await other.retry(job.id)
        await other.close()
    async with shop.node():
        assert await job.wait(60) == sealed.Card("4000hunter2")


async def test_a_codec_that_fails(migrated: str) -> None:
    class Broken:
        good = True

        def encode(self, data: bytes) -> Any:
            if not self.good:
                raise RuntimeError("no key")
            return data

        def decode(self, data: bytes) -> bytes:
            return data

    codec = Broken()
    app = App(migrated, name="broken", codec=codec)
    runs: list[int] = []

    @app.task(name="returns")
    async def returns(n: int) -> int:
        runs.append(n)
        codec.good = False
        return n

    job = await returns.enqueue(1)
    async with app.node():
        with pytest.raises(JobFailed, match=r"its result is lost.*no key"):
            await job.wait(60)
    assert runs == [1], "the handler does not run again"
    with pytest.raises(BadPayload, match=r"arguments of returns: the codec failed.*no key"):
        await returns.enqueue(2)
    await app.close()


async def test_the_arguments_of_schedules_stay_as_they_are_in_the_code(shop: App) -> None:
    """A text that differs each time would redefine the schedule in every process."""
    async with shop.node():

        async def ran() -> bool:
            return any(job.result == "in the code" for job in await shop.jobs(task="of_schedule"))

        await until_async(ran, 30, "the schedule's job")
    assert "in the code" in stored(shop.settings.dsn)
