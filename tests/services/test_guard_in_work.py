"""However much the guard has to do between two heartbeats, the next one is in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from leasework import Context
from leasework.env import Env
from leasework.jobs.running import Claim, Overdue, Running
from leasework.model.job import ClaimedJob
from leasework.store.store import Store
from tests.services.several import TIMES, Database, several_apps
from tests.support.wait import forever, until, until_async

JOBS = 40
FAR = 1.3 * TIMES.trust / JOBS
"""Seconds for a round trip: all of them take longer than the node's lease may be trusted."""


class FarStore(Store):
    async def requeue(self, *given: Any) -> Any:
        await asyncio.sleep(FAR)
        return await super().requeue(*given)


@pytest.fixture
async def database(dsn: str, migrated: str) -> AsyncIterator[Database]:
    async with several_apps(dsn, migrated) as database:
        yield database


async def test_many_overdue_jobs_over_a_slow_link_do_not_fence_their_node(database):
    app = database.app()
    runs: list[UUID] = []

    @app.task(name="stuck", requeue_after=1.0)
    async def stuck(ctx: Context) -> None:
        runs.append(ctx.job_id)
        if runs.count(ctx.job_id) == 1:
            await forever()

    node = await app.make_node(queues={"default": JOBS})
    settings = replace(app.settings, call_timeout=app.settings.timings.call_timeout)
    node.guard._make_store = lambda role: FarStore(settings, role)
    jobs = [await stuck.enqueue() for _ in range(JOBS)]
    await node.start()
    try:
        for job in jobs:
            await job.wait(timeout=60)
    finally:
        await node.stop()
    assert len(await database.events("job_requeued")) == JOBS, "each once"
    assert not await database.events("node_fenced")
    await until_async(lambda: sorted(set(runs)) == sorted(job.id for job in jobs), 1)


async def test_a_job_that_has_ended_and_is_not_recorded_yet_is_not_taken_away(database, direct_dsn):
    """The next job blocks the event loop, so the acker cannot write for a while."""
    app = database.app()
    taken = "select 1 from leasework.job where id = %s and node is null"
    ran: list[str] = []

    @app.task(requeue_after=1.0, max_attempts=1)
    async def brief() -> None:
        ran.append("brief")

    @app.task(requeue_after=1.0)
    async def blocks(ctx: Context) -> None:
        ran.append("blocks")
        if ran.count("blocks") == 1:
            with psycopg.connect(direct_dsn, autocommit=True) as connection:
                until(lambda: connection.execute(taken, [ctx.job_id]).fetchall(), 60)

    jobs = await app.enqueue_many([brief.using(priority=-1).job(), blocks.job()])
    async with app.node():
        for job in jobs:
            await job.wait(timeout=60)
    assert ran == ["brief", "blocks", "blocks"]
    assert len(await database.events("job_requeued")) == 1


def test_a_look_goes_on_where_the_last_one_ended_also_while_the_loop_is_blocked():
    """Nobody is told meanwhile that their jobs are taken away: their claims stay as they are."""
    running, now = Running(), datetime(2026, 1, 1, tzinfo=UTC)
    for token in range(1, 6):
        job = ClaimedJob(uuid4(), "t", "default", {}, 0, 1, 5, 0, token, None, 1.0, now,
                         True, None)  # fmt: skip
        running.add([Claim(job, uuid4(), started_at=-1000.0)])
    overdue = Overdue(Env(), running, lambda kind, **fields: None)
    looks: list[list[int]] = []
    for _ in range(3):
        look = list(islice(overdue.to_take_away(), 2))
        looks.append([claim.job.claim_token for claim in look])
        for claim in look:
            if claim.job.claim_token != 2:  # a transaction of its handler's holds it
                overdue.given_up(claim)
    assert looks == [[1, 2], [3, 4], [5]]
    assert [claim.job.claim_token for claim in overdue.to_take_away()] == [2], "asked again"
    running.remove(running.snapshot())
    assert list(overdue.to_take_away()) == []
