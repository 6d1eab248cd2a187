"""``app.schedules``: schedules that are put, changed and deleted while the application runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from leasework import App, Context, Retention
from leasework.errors import BadJob, BadSchedule, UnknownTask
from leasework.tuning import Tuning
from tests.support.moments import HALF_A_WEEK_AWAY, WEEK_SECONDS
from tests.support.wait import BUSY_SECONDS, until_async

Ran = list[tuple[int, datetime]]


@pytest.fixture
def ran() -> Ran:
    return []


@pytest.fixture
async def shop(migrated: str, ran: Ran) -> AsyncIterator[App]:
    app = App(migrated, name="shop")

    @app.task(name="report")
    async def report(ctx: Context, customer: int) -> None:
        ran.append((customer, ctx.scheduled_for))

    @app.every(seconds=WEEK_SECONDS, anchor=HALF_A_WEEK_AWAY, name="weekly")
    @app.task(name="other")
    async def other() -> None: ...

    yield app
    await app.close()


async def some(ran: Ran, count: int) -> None:
    async def enough() -> bool:
        return len(ran) >= count

    await until_async(enough, 30, f"{count} runs")


async def fired(shop: App, name: str, count: int) -> bool:
    return len(await (await shop.inspect()).ticks(name, count)) >= count


async def test_a_schedule_that_is_put_while_the_leader_sleeps_fires_at_its_first_moment(
    shop: App, ran: Ran
) -> None:
    async with shop.node():

        async def synced() -> bool:
            return bool(await shop.schedules.list())

        await until_async(synced, 30, "the leader, which has looked and sleeps for seconds")
        before = datetime.now(UTC)
        await shop.schedules.put("r42", "report", every=1, missed="all", arguments={"customer": 42})
        after = datetime.now(UTC)
        await some(ran, 2)
    assert {customer for customer, _ in ran} == {42}
    ticks = await (await shop.inspect()).ticks("r42", 100)
    first, second = sorted(ticks, key=lambda tick: tick.fire_at)[:2]
    assert before < first.fire_at <= after + timedelta(seconds=1), "the first one since the put"
    assert second.fire_at - first.fire_at == timedelta(seconds=1)
    assert first.lateness_seconds < Tuning.schedule_look_seconds / 2, "the leader was not woken"
    found = await shop.schedules.get("r42")
    assert (found.task_name, found.in_code, found.last_state) == ("report", False, "fired")
    assert found.job["payload"] == {"customer": 42}
    assert [s.name for s in await shop.schedules.list()] == ["r42", "weekly"]


async def test_a_changed_schedule_fires_by_its_new_definition_and_a_deleted_one_never(
    shop: App, ran: Ran
) -> None:
    await shop.schedules.put("a", "report", every=1, arguments={"customer": 1})
    async with shop.node():
        await some(ran, 1)
        await shop.schedules.put("a", "report", every=1, arguments={"customer": 2})
        await some(ran, len(ran) + 3)
        assert ran[-1][0] == 2
        await shop.schedules.put("b", "report", every=1, arguments={"customer": 3})
        await shop.schedules.delete("a")
        [tick, *_] = await (await shop.inspect()).ticks("a", 1)
        await until_async(lambda: fired(shop, "b", 3), 30, "three moments of another one")
    [last, *_] = await (await shop.inspect()).ticks("a", 1)
    assert last.fire_at <= tick.fire_at + timedelta(seconds=1), "one may have been under way"
    of_a = [moment for customer, moment in ran if customer != 3]
    assert len(set(of_a)) == len(of_a)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"every": 60, "timezone": "Asia/Seoul"}, "timezone is only for cron"),
        ({"cron": "0 7 * * *", "anchor": datetime(2030, 1, 1, tzinfo=UTC)}, "anchor is only for"),
    ],
)
async def test_what_a_schedule_would_not_use_is_refused(
    shop: App, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadSchedule, match=words):
        await shop.schedules.put("r42", "report", arguments={"customer": 42}, **given)


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_a_change_is_part_of_the_users_transaction(shop: App, commits: bool) -> None:
    task: Any = shop.registry.get("report")
    for name in ("old", "kept"):
        await shop.schedules.put(name, "report", every=60, arguments={"customer": 1})
    async with await psycopg.AsyncConnection.connect(await shop.dsn()) as user:
        given = {"cron": "0 7 * * *", "timezone": "Asia/Seoul", "arguments": {"customer": 2}}
        await shop.schedules.put("new", task.name, on=user, **given)
        await shop.schedules.delete("old", on=user)
        await shop.schedules.pause("kept", on=user)
        seen = [(s.name, s.paused) for s in await shop.schedules.list()]
        assert seen == [("kept", False), ("old", False)], "nobody else sees it yet"
        await (user.commit() if commits else user.rollback())
    changed = [("kept", True), ("new", False)] if commits else seen
    assert [(s.name, s.paused) for s in await shop.schedules.list()] == changed
    async with await psycopg.AsyncConnection.connect(await shop.dsn()) as user:
        await shop.schedules.resume("kept", on=user)
        with pytest.raises(BadSchedule, match="no schedule is named"):
            await shop.schedules.pause("none", on=user)
    assert not (await shop.schedules.get("kept")).paused


async def test_a_put_that_is_rolled_back_never_fires(shop: App, ran: Ran) -> None:
    async with shop.node(), await psycopg.AsyncConnection.connect(await shop.dsn()) as user:
        await shop.schedules.put("no", "report", every=1, arguments={"customer": 1}, on=user)
        await shop.schedules.put("yes", "report", every=1, arguments={"customer": 2})
        await some(ran, 3)
        await user.rollback()
        await some(ran, len(ran) + 2)
    assert {customer for customer, _ in ran} == {2}
    assert await (await shop.inspect()).ticks("no", 1) == []


@pytest.mark.parametrize("act", ["put", "delete", "refused"])
async def test_a_users_open_transaction_stops_no_other_schedule(
    shop: App, ran: Ran, act: str
) -> None:
    await shop.schedules.put("held", "report", every=1, arguments={"customer": 1})
    await shop.schedules.put("free", "report", every=1, arguments={"customer": 2})
    async with shop.node(), await psycopg.AsyncConnection.connect(await shop.dsn()) as user:
        await until_async(lambda: fired(shop, "held", 1), 30, "its first moment")
        if act == "put":
            await shop.schedules.put("held", "report", every=9, arguments={"customer": 1}, on=user)
        elif act == "delete":
            await shop.schedules.delete("held", on=user)
        else:
            with pytest.raises(BadSchedule, match="the code defines"):
                await shop.schedules.put("weekly", "other", every=1, on=user)
            locked = "select 1 from leasework.schedule where name = 'weekly' for update skip locked"
            async with await psycopg.AsyncConnection.connect(await shop.dsn()) as other:
                assert await (await other.execute(locked)).fetchone(), "it is not locked"
        before = len(await (await shop.inspect()).ticks("free", 1000))
        await until_async(lambda: fired(shop, "free", before + 3), 30, "the other one goes on")
        ticks = await (await shop.inspect()).ticks("free", 3)
        assert max(tick.lateness_seconds for tick in ticks) < 3.0 + BUSY_SECONDS
        await user.rollback()
        held = len(await (await shop.inspect()).ticks("held", 1000))
        await until_async(lambda: fired(shop, "held", held + 2), 30, "it goes on as well")


async def test_a_put_that_waits_for_a_delete_makes_the_schedule_again(shop: App, sql: Any) -> None:
    waits = (
        "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query ~ 'schedule_put'"
    )
    given = {"every": 60, "arguments": {"customer": 1}}
    await shop.schedules.put("r", "report", **given)
    async with await psycopg.AsyncConnection.connect(await shop.dsn()) as user:
        await shop.schedules.delete("r", on=user)
        put = asyncio.create_task(shop.schedules.put("r", "report", **given))
        await until_async(lambda: sql(waits), 30, "the put to wait")
        await user.commit()
        await put
    assert [s.name for s in await shop.schedules.list()] == ["r"]


async def test_pause_resume_and_run_now(shop: App, ran: Ran) -> None:
    await shop.schedules.put("r", "report", every=1, missed="skip", arguments={"customer": 1})
    await shop.schedules.pause("r")
    assert (await shop.schedules.get("r")).paused
    job = await shop.schedules.run_now("r")
    assert isinstance(job, UUID)
    async with shop.node():
        await shop.schedules.put("b", "report", every=1, arguments={"customer": 3})
        await until_async(lambda: fired(shop, "b", 2), 30, "two moments of another one")
        assert [customer for customer, _ in ran].count(1) == 1, "it is paused"
        await shop.schedules.resume("r")
        await until_async(lambda: fired(shop, "r", 3), 30, "its moments")


async def test_code_without_an_event_loop_puts_schedules_too(shop: App) -> None:
    def work() -> None:
        stored = shop.sync.schedules
        stored.put("r", "report", every=60, arguments={"customer": 1})
        with psycopg.connect(shop.settings.dsn) as user:
            stored.put("s", "report", every=60, arguments={"customer": 1}, on=user)
            stored.delete("r", on=user)
        assert stored.get("s").task_name == "report"
        stored.pause("s")
        stored.resume("s")
        assert stored.run_now("s")
        stored.delete("s")
        assert stored.list() == []
        shop.sync.close()

    await asyncio.to_thread(work)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({}, BadSchedule, "give exactly one of cron, every and at"),
        ({"every": 1, "cron": "* * * * *"}, BadSchedule, "give exactly one of cron, every and at"),
        ({"every": 0}, BadSchedule, "from 1 to"),
        ({"cron": "nonsense"}, BadSchedule, "cron"),
        ({"every": 1, "unique": "k"}, BadSchedule, "no option 'unique'"),
        ({"every": 1, "arguments": {"costumer": 1}}, BadJob, "cannot take these arguments"),
        ({"every": 1, "missed": "never"}, BadSchedule, "missed"),
    ],
)
async def test_a_wrong_definition_is_refused_and_nothing_is_stored(
    shop: App, given: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        await shop.schedules.put("r", "report", **{"arguments": {"customer": 1}, **given})
    assert await shop.schedules.list() == []


async def report_of(customer: int) -> None: ...


async def test_a_moment_that_never_fires_is_refused(shop: App) -> None:
    options: Any = {"arguments": {"customer": 1}}
    now = datetime.now(UTC)
    with pytest.raises(BadSchedule, match="never fire"):
        await shop.schedules.put("r", "report", at=now - timedelta(days=1, seconds=1), **options)
    await shop.schedules.put("r", "report", at=now - timedelta(hours=23), **options)
    moment = now - timedelta(days=2)
    earlier = App(shop.settings.dsn, name="shop", retention=Retention(catch_up_seconds=1e6))
    earlier.task(name="report")(report_of)
    await earlier.schedules.put("s", "report", at=moment, **options)
    await shop.schedules.put("s", "report", at=moment, **options)
    with pytest.raises(BadSchedule, match="never fire"):
        await shop.schedules.put("s", "report", at=moment - timedelta(days=1), **options)
    await earlier.close()

    def put_over_a_sync_connection(ago: timedelta) -> None:
        with psycopg.connect(shop.settings.dsn) as users:
            shop.sync.schedules.put("s", "report", at=moment - ago, on=users, **options)

    await asyncio.to_thread(put_over_a_sync_connection, timedelta())
    with pytest.raises(BadSchedule, match="never fire"):
        await asyncio.to_thread(put_over_a_sync_connection, timedelta(days=1))


async def test_a_name_that_this_code_defines_is_refused_before_any_worker_has_run(
    shop: App,
) -> None:
    with pytest.raises(BadSchedule, match="the code defines a schedule named 'weekly'"):
        await shop.schedules.put("weekly", "other", every=1)
    assert await shop.schedules.list() == []


async def test_what_is_not_there_or_belongs_to_the_code_is_said(shop: App) -> None:
    with pytest.raises(UnknownTask, match="report"):
        await shop.schedules.put("r", "reprot", every=1)
    for call in (
        shop.schedules.get("no"),
        shop.schedules.pause("no"),
        shop.schedules.run_now("no"),
        shop.schedules.delete("no"),
    ):
        with pytest.raises(BadSchedule, match="no schedule"):
            await call
    async with shop.node():

        async def synced() -> bool:
            return bool(await shop.schedules.list())

        await until_async(synced, 30, "the schedules of the code")
        with pytest.raises(BadSchedule, match="the code defines a schedule named 'weekly'"):
            await shop.schedules.put("weekly", "other", every=1)
        with pytest.raises(BadSchedule, match="no schedule was put under the name"):
            await shop.schedules.delete("weekly")
