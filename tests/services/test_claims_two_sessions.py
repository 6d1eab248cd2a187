"""Claims, acks and deaths in two real sessions.

Each was seen to fail with its protection taken out.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from leasework.errors import Conflict
from leasework.model.begins import Begins
from leasework.pg.sql import statement
from leasework.store.jobs import claim_params
from tests.pg.claim_worker import jobs_of
from tests.services.sessions import Process, Two, execute, two_processes
from tests.support.wait import until_async


@pytest.fixture
async def two(migrated: str) -> AsyncIterator[Two]:
    async with two_processes(migrated) as two:
        yield two


async def claim_and_hold(two: Two, process: Process) -> Any:
    """A claim whose transaction is open: sent, and not committed yet."""
    session = await two.session()
    begins = Begins(time.monotonic)
    params = claim_params(process.id, process.epoch, {"default": 10}, [], None, begins)
    rows = await execute(session, "job/claim", params)
    assert jobs_of(rows), "it should have claimed something"
    return session


# -- claims against deaths -----------------------------------------------------------------------
async def test_a_death_waits_for_a_claim_in_flight_and_frees_its_jobs_then(two):
    [job] = await two.enqueue()
    term = await two.b.lead()
    seen = next(n.seen for n in (await two.b.beat()).nodes if n.id == two.a.id)
    claim = await claim_and_hold(two, two.a)
    burial = asyncio.create_task(two.b.store.bury(term, two.a.id, seen.token, seen.seq))
    await two.waits()
    assert not burial.done()
    await claim.commit()
    assert await burial
    assert await two.state(job) == "running"
    [freed] = await two.b.store.rescue([two.a.id], 3, 100, None)
    assert freed.job == job
    assert await two.state(job) == "available"


async def test_a_claim_whose_answer_nobody_reads_keeps_no_node_alive(two):
    """The worker was frozen, cut off or powered off. No limit of the server ends the session."""
    jobs = await two.enqueue(1000, payload=json.dumps({"text": "x" * 20000}))
    term = await two.b.lead()
    seen = next(n.seen for n in (await two.b.beat()).nodes if n.id == two.a.id)
    begins = Begins(time.monotonic)
    params = claim_params(two.a.id, two.a.epoch, {"default": 1000}, [], None, begins)
    claim = psycopg.ClientCursor(two.user).mogrify(statement("job/claim", "leasework"), params)
    await two.unread(claim)
    await two.shorten(lease=1000.0)
    with pytest.raises(Conflict):
        await two.b.store.bury(term, two.a.id, seen.token, seen.seq)
    await two.shorten(call_timeout=1000.0)
    with pytest.raises(Conflict):
        await two.b.store.bury(term, two.a.id, seen.token, seen.seq)
    with pytest.raises(Conflict):
        await two.b.store.bury(term, two.a.id, seen.token, seen.seq)
    await two.shorten()

    async def buried() -> bool:
        with suppress(Conflict):
            return bool(await two.b.store.bury(term, two.a.id, seen.token, seen.seq))
        return False

    await until_async(buried)
    assert await two.state(jobs[0]) == "available", "the claim was rolled back"


async def test_a_certificate_waits_for_a_claim_in_flight_too(two):
    await two.enqueue()
    claim = await claim_and_hold(two, two.a)
    certificate = asyncio.create_task(two.b.store.certify(two.a.id, 10.0))
    await two.waits()
    await claim.commit()
    assert await certificate


async def test_a_claim_does_not_hold_up_the_renewal_of_its_node(two):
    await two.enqueue()
    await claim_and_hold(two, two.a)
    async with asyncio.timeout(60):
        assert (await two.a.beat()).node_renewed


async def test_a_node_that_is_gone_claims_nothing(two):
    [job] = await two.enqueue()
    await two.sql("delete from leasework.node where id = %s", two.a.id)
    assert await two.a.claim() == []
    assert await two.state(job) == "available"


# -- claims without an answer --------------------------------------------------------------------
async def test_a_claim_of_an_old_epoch_gets_nothing(two):
    await two.enqueue()
    assert await two.a.store.new_epoch(two.a.id, two.a.token, 2) == 2
    assert await two.a.claim() == []
    two.a.epoch = 2
    assert len(await two.a.claim()) == 1


async def test_a_claim_of_an_old_epoch_that_waits_for_the_new_one_gets_nothing(two):
    [job] = await two.enqueue()
    session = await two.session()
    new = {"node": two.a.id, "token": two.a.token, "epoch": 2}
    assert await execute(session, "node/new_epoch", new) == [(2,)]
    claim = asyncio.create_task(two.a.claim())
    await two.waits()
    await session.commit()
    assert await claim == []
    assert await two.state(job) == "available"


async def test_a_new_epoch_waits_for_the_claim_in_flight_and_gives_its_jobs_back(two):
    [known] = await two.enqueue()
    [held] = await two.a.claim()
    [job] = await two.enqueue()
    claim = await claim_and_hold(two, two.a)
    epoch = asyncio.create_task(two.a.store.new_epoch(two.a.id, two.a.token, 2))
    await two.waits()
    await claim.commit()
    assert await epoch == 2
    assert await give_back_unknown(two, held) == 1
    assert await two.state(job) == "available"
    assert await two.state(known) == "running"
    assert await two.a.ack(held)


async def test_an_unknown_claim_of_a_job_that_ran_here_before_is_given_back(two):
    """The job was taken away from its run by ``requeue_after``, which still hangs in our hands;
    then we claimed it again without hearing of it."""
    [job] = await two.enqueue()
    [hanging] = await two.a.claim()
    assert await two.a.store.requeue(job, hanging.claim_token)
    await two.a.claim()  # the answer that was lost
    await two.a.store.new_epoch(two.a.id, two.a.token, 2)
    assert await give_back_unknown(two, hanging) == 1
    assert await two.state(job) == "available"


async def give_back_unknown(two: Two, *held: Any) -> int:
    known = [job.claim_token for job in held]
    return await two.a.store.give_back_unknown(two.a.id, 2, known)


# -- acks ----------------------------------------------------------------------------------------
async def test_an_ack_with_an_old_token_changes_nothing(two):
    [job] = await two.enqueue()
    [first] = await two.a.claim()
    await two.a.store.requeue(job, first.claim_token)
    [second] = await two.a.claim()
    assert second.claim_token > first.claim_token
    assert not await two.a.ack(first)
    assert await two.state(job) == "running"
    assert await two.a.ack(second)
    assert await two.state(job) == "completed"


async def test_an_ack_by_another_node_changes_nothing(two):
    [job] = await two.enqueue()
    [claimed] = await two.a.claim()
    assert not await two.b.ack(claimed)
    assert await two.state(job) == "running"


async def test_an_ack_after_the_rescue_changes_nothing(two):
    [job] = await two.enqueue()
    [claimed] = await two.a.claim()
    await two.sql("delete from leasework.node where id = %s", two.a.id)
    await two.b.store.rescue([two.a.id], 3, 100, None)
    assert not await two.a.ack(claimed)
    [again] = await two.b.claim()
    assert not await two.a.ack(claimed)
    assert await two.b.ack(again)
    assert await two.state(job) == "completed"
    assert await two.one("select count(*) from leasework.job_done") == 1


# -- many ----------------------------------------------------------------------------------------
async def test_two_sessions_that_claim_a_thousand_jobs_get_each_once(two):
    wanted = set(await two.enqueue(1000))

    async def drain(process: Process) -> list[Any]:
        got: list[Any] = []
        while batch := await process.claim(37):
            got += batch
        return got

    of_a, of_b = await asyncio.gather(drain(two.a), drain(two.b))
    assert of_a and of_b, "both had a share"
    ids = [job.id for job in of_a + of_b]
    assert len(ids) == 1000
    assert set(ids) == wanted
    assert len({job.claim_token for job in of_a + of_b}) == 1000
    rows = await two.sql("select node, count(*) from leasework.job group by node")
    assert dict(rows) == {two.a.id: len(of_a), two.b.id: len(of_b)}


# -- rescue --------------------------------------------------------------------------------------
async def test_a_rescue_frees_only_the_jobs_of_the_dead(two):
    await two.enqueue(2)
    [of_a] = await two.a.claim(1)
    [of_b] = await two.b.claim(1)
    assert await two.b.store.rescue([two.a.id, two.b.id], 3, 100, None) == []
    await two.sql("delete from leasework.node where id = %s", two.a.id)
    freed = await two.b.store.rescue([two.a.id, two.b.id], 3, 100, None)
    assert [job.job for job in freed] == [of_a.id]
    assert await two.state(of_b.id) == "running"
    assert await two.b.ack(of_b)


async def test_a_rescue_passes_over_a_row_that_a_user_completes_in_a_transaction(two):
    await two.enqueue(2)
    locked, other = await two.a.claim()
    user = await two.session()
    await user.execute("select 1 from leasework.job where id = %s for update", [locked.id])
    await two.sql("delete from leasework.node where id = %s", two.a.id)
    async with asyncio.timeout(60):
        freed = await two.b.store.rescue([two.a.id], 3, 100, None)
    assert [job.job for job in freed] == [other.id]
    assert await two.b.store.settle([two.a.id]) == 0, "it is not over"
    await user.rollback()
    assert [j.job for j in await two.b.store.rescue([two.a.id], 3, 100, None)] == [locked.id]
    assert await two.b.store.settle([two.a.id]) == 1


async def test_every_way_in_which_a_node_row_goes_is_a_death(two):
    await two.sql("delete from leasework.node where id = %s", two.a.id)
    assert [node for node, _ in await two.b.store.deaths(10)] == [two.a.id]
