"""Tokens on every driver: a claim that was lost writes nothing, one that is asserted stays ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from leasehold.errors import LostClaim
from leasehold.model.states import State
from leasehold.pg.user import UserConnections
from tests.pg.bench import Bench
from tests.pg.drivers import ALL, done

Sql = Callable[..., Awaitable[list[Any]]]
USERS = UserConnections("leasehold")


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
