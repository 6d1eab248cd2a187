"""Which queues sleep, as the node's row says it: else nobody sends a notification."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from leasework.errors import Unavailable
from leasework.jobs.producer import Sleepers
from tests.support.hand import Database, a_database
from tests.support.wait import until_async

WAITING = """
select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
having count(*) = 1
"""


@pytest.fixture
async def made(migrated: str) -> AsyncIterator[Database]:
    async with a_database(migrated) as database:
        yield database


async def test_what_was_said_of_the_identity_before_does_not_count_for_the_next(
    made: Database, direct_dsn: str
):
    process = made.process()
    await process.step()
    sleepers = Sleepers(process.store, process.guard)
    async with await psycopg.AsyncConnection.connect(direct_dsn) as other:
        await other.execute("select 1 from leasework.node for update")
        one = asyncio.create_task(sleepers.set({"one"}, set()))
        await until_async(lambda: made.sql(WAITING), 30, "the statement to be under way")
        sleepers.forget()  # as when the node came back under another identity
        await other.rollback()
        await one
    assert "one" not in sleepers.asleep
    await sleepers.set({"two"}, set())
    assert "two" in sleepers.asleep
    assert await made.sql("select sleeping from leasework.node") == [(["two"],)]


async def test_queues_that_fall_asleep_and_wake_up_at_once_are_said_in_one_statement(
    made: Database,
):
    process = made.process()
    await process.step()
    sleepers = Sleepers(process.store, process.guard)
    await sleepers.set({"one", "two", "three"}, set())
    await sleepers.set({"four"}, {"one"})
    assert await made.sql("select sleeping from leasework.node") == [(["four", "three", "two"],)]
    assert sleepers.asleep == {"two", "three", "four"}


@pytest.mark.parametrize("asleep", [True, False])
async def test_what_was_said_without_an_answer_is_said_again(
    made: Database, monkeypatch: pytest.MonkeyPatch, asleep: bool
):
    """Else a queue that sleeps would be taken for one that is awake, and nobody would wake it."""
    process = made.process()
    await process.step()
    sleepers = Sleepers(process.store, process.guard)
    await sleepers.set(*((set(), {"q"}) if asleep else ({"q"}, set())))
    said = process.store.set_sleeping

    async def lost(*given: Any) -> None:
        await said(*given)
        raise Unavailable("the answer was lost", sent=True)

    monkeypatch.setattr(process.store, "set_sleeping", lost)
    with pytest.raises(Unavailable):
        await sleepers.set(*(({"q"}, set()) if asleep else (set(), {"q"})))
    monkeypatch.setattr(process.store, "set_sleeping", said)
    await sleepers.set({"q"}, set())
    assert await made.sql("select sleeping from leasework.node") == [(["q"],)]
