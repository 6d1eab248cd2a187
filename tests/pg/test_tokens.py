"""Tokens on every driver: a claim that was lost writes nothing, one that is asserted stays ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from leasework.errors import LostClaim
from leasework.model.states import State
from leasework.pg.users import user
from leasework.pg.users.user import UserConnections
from tests.pg.bench import Bench
from tests.pg.drivers import ALL, done
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]
USERS = UserConnections("leasework")


async def test_on_every_driver_a_lost_claim_fails_the_transaction_whatever_it_does_then(
    bench: Bench, migrated: str, sql: Sql
) -> None:
    await sql("create table effect (n int)")
    for name, open_way in ALL.items():
        job = await bench.claimed()
        assert await bench.store.requeue(job.id, job.claim_token)
        for act in ("assert_mine", "complete"):
            async with open_way(migrated) as way:
                await way.effect()
                with pytest.raises(LostClaim, match="taken away"):
                    given = (way.connection, job.id, bench.node, job.claim_token)
                    await (
                        USERS.complete(*given, None)
                        if act == "complete"
                        else USERS.assert_mine(*given)
                    )
                with suppress(Exception):
                    await done(way.commit())
        assert await sql("select * from effect") == [], name
        [again] = await bench.claim()
        assert again.id == job.id and again.claim_token > job.claim_token
        await bench.ack(again)


@pytest.mark.parametrize("act", ["assert_mine", "complete"])
async def test_on_every_driver_a_row_is_free_again_when_its_transaction_is_idle_for_long(
    bench: Bench, migrated: str, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """As when the handler's host loses its power: no reset comes, the server alone can tell."""
    monkeypatch.setattr(user, "_IDLE_MS", 400)
    for name, open_way in ALL.items():
        job = await bench.claimed()
        with suppress(Exception):  # to leave a connection that the server has ended
            async with open_way(migrated) as way:
                given = (way.connection, job.id, bench.node, job.claim_token)
                await (
                    USERS.complete(*given, None) if act == "complete" else USERS.assert_mine(*given)
                )

                async def taken(job: Any = job) -> bool:
                    state = await bench.store.requeue(job.id, job.claim_token)
                    return state is not State.RUNNING

                await until_async(taken, 30, f"the row's lock over {name} to go")
        assert await bench.state(job.id) is State.AVAILABLE, name
        [again] = await bench.claim()
        await bench.ack(again)


async def test_a_stricter_limit_of_the_users_stays(bench: Bench) -> None:
    for theirs, wanted in (("3s", "3s"), ("0", "10s"), ("1min", "10s")):
        job = await bench.claimed()
        await bench.user.execute(f"set idle_in_transaction_session_timeout = '{theirs}'".encode())
        await USERS.assert_mine(bench.user, job.id, bench.node, job.claim_token)
        await USERS.complete(bench.user, job.id, bench.node, job.claim_token, None)
        cursor = await bench.user.execute("show idle_in_transaction_session_timeout")
        assert await cursor.fetchone() == (wanted,)
        await bench.user.commit()


async def test_a_job_without_history_leaves_nothing_when_its_handler_completes_it(
    bench: Bench,
) -> None:
    for history in (False, True):
        job = await bench.claimed(history=history)
        await USERS.complete(bench.user, job.id, bench.node, job.claim_token, None)
        await bench.user.commit()
        assert (await bench.store.get(job.id) is not None) == history


async def test_a_marked_start_is_when_a_completed_run_began(bench: Bench, sql: Sql) -> None:
    job = await bench.claimed()
    later = datetime(2030, 1, 1, tzinfo=UTC)
    assert await bench.store.start(bench.node, job.id, job.claim_token, later)
    await USERS.complete(bench.user, job.id, bench.node, job.claim_token, None)
    await bench.user.commit()
    assert await sql("select started_at from leasework.job_done") == [(later,)]


async def test_on_every_driver_nobody_takes_an_asserted_job_before_the_end(
    bench: Bench, migrated: str, sql: Sql
) -> None:
    await sql("create table effect (n int)")
    for number, (name, open_way) in enumerate(ALL.items(), 1):
        job = await bench.claimed()
        async with open_way(migrated) as way:
            await USERS.assert_mine(way.connection, job.id, bench.node, job.claim_token)
            assert await bench.store.requeue(job.id, job.claim_token) is State.RUNNING, name
            await way.effect(number)
            await USERS.complete(way.connection, job.id, bench.node, job.claim_token, [name])
            assert await bench.state(job.id) is State.RUNNING, "seen at the commit"
            await done(way.commit())
        record = await bench.store.get(job.id)
        assert record and (record.state, record.result) == (State.COMPLETED, [name])
        assert await sql("select max(n) from effect") == [(number,)]
