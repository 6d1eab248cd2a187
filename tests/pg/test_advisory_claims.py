"""``app.queue(…, claim="advisory")`` on PostgreSQL: the locks, contention, and the same results as
with the default claim."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from leasework import App, Context
from leasework.config import Settings
from leasework.errors import ConfigError
from leasework.jobs.producer import claim_by_advisory_locks
from leasework.pg.sql import statement
from leasework.store.nodes import NodeIdentity
from leasework.store.store import Store
from tests.pg.bench import Bench

Sql = Callable[..., Awaitable[list[Any]]]


async def test_a_job_that_another_session_tries_is_left_to_it(bench: Bench, sql: Sql) -> None:
    jobs = [await bench.enqueue() for _ in range(3)]
    lock = (
        "select pg_advisory_xact_lock(leasework.lock_class('leasework.job'),"
        " ('x' || right(%s::text, 8))::bit(32)::integer)"
    )
    await bench.user.execute(lock, [jobs[0]])
    [(name,)] = await sql("select name from leasework.locks")
    assert name.startswith("leasework.job:")
    claimed = await bench.store.claim_candidates(bench.node, 1, jobs, 10, None)
    assert [job.id for job in claimed] == jobs[1:]
    await bench.user.commit()
    assert await sql("select 1 from leasework.locks") == [], "the commit unlocks"
    [job] = await bench.store.claim_candidates(bench.node, 1, jobs, 10, None)
    assert job.id == jobs[0]


@pytest.mark.parametrize("checked", [True, False])
async def test_the_stale_list_without_its_double_check_claims_what_another_worker_runs(
    bench: Bench, sql: Sql, checked: bool
) -> None:
    """The test of the test: candidates 1, 2, 3, and meanwhile another worker claims 1, and puts 2
    off for later. With the second look taken out both are taken from it."""
    jobs = [await bench.enqueue() for _ in range(3)]
    listed = await bench.store.candidates("default", [], 0, 10)
    other = await Bench.make(bench.store, bench.user)
    await other.claim(2)
    await sql(
        "update leasework.job set node = null, ready = false, run_at = now() + interval '1 hour'"
        " where id = %s",
        [jobs[1]],
    )
    text = statement("job/claim_candidates", "leasework")
    check = "and case when ready then node is null end"
    assert check in text
    params = {"node": bench.node, "epoch": 1, "jobs": listed, "limit": 10, "now": None}
    rows = await sql(text if checked else text.replace(check, ""), params)
    assert {row[0] for row in rows} == set(jobs[2:] if checked else jobs)


async def test_workers_of_both_kinds_drain_a_queue_and_each_job_runs_once(
    migrated: str, sql: Sql
) -> None:
    """Eight claimers at once, four of a kind, with batches that overlap: the same jobs, each
    claimed once, as by claimers of the default kind alone."""
    counts: dict[str, Counter[UUID]] = {}
    for kinds in ("rows", "mixed", "advisory"):
        store = Store(Settings(dsn=migrated), "work", 8)
        user = await psycopg.AsyncConnection.connect(migrated)
        claimers = [await Bench.make(store, user) for _ in range(8)]
        jobs = {await claimers[0].enqueue(priority=n % 3) for n in range(300)}
        seen: Counter[UUID] = Counter()

        async def drain(number: int, bench: Bench, kinds: str = kinds, seen: Any = seen) -> None:
            advisory = kinds == "advisory" or (kinds == "mixed" and number % 2)
            while True:
                if advisory:
                    found, more = await claim_by_advisory_locks(
                        bench.store, bench.node, 1, "default", [], 7, None
                    )
                else:
                    found, more = await bench.claim(7), False
                seen.update(job.id for job in found)
                if not found and not more:
                    return
                while found:  # a claim that comes too late holds a row for a moment
                    acked = await bench.ack(*found)
                    assert acked.written | acked.locked == {job.id for job in found}
                    found = [job for job in found if job.id in acked.locked]

        await asyncio.gather(*(drain(n, bench) for n, bench in enumerate(claimers)))
        assert seen.keys() == jobs and set(seen.values()) == {1}, kinds
        counts[kinds] = seen
        assert await sql("select 1 from leasework.job") == []
        await user.close()
        await store.close()
    assert await sql("select attempt, count(*) from leasework.job_done group by 1") == [(1, 900)]


async def test_a_single_claimer_gets_the_same_order_as_by_default(migrated: str) -> None:
    store = Store(Settings(dsn=migrated), "work")
    user = await psycopg.AsyncConnection.connect(migrated)
    bench = await Bench.make(store, user)
    orders = []
    for advisory in (False, True):
        ids = [uuid4() for _ in range(60)]
        for n, _ in enumerate(ids):
            await bench.enqueue(priority=n * 7 % 5)
        order = []
        while True:
            if advisory:
                found, _ = await claim_by_advisory_locks(
                    store, bench.node, 1, "default", [], 9, None
                )
            else:
                found = await bench.claim(9)
            if not found:
                break
            order += [job.priority for job in found]
            await bench.ack(*found)
        orders.append(order)
    assert orders[0] == orders[1] and len(orders[0]) == 60
    await user.close()
    await store.close()


async def test_two_nodes_run_an_advisory_queue_beside_a_default_one(
    app: App, dsn: str, sql: Sql
) -> None:
    other = App(dsn)
    ran: Counter[int] = Counter()

    def define(one: App, claim: str) -> Any:
        one.queue("mail", claim=claim)

        @one.task(name="send", queue="mail")
        async def send(ctx: Context, n: int) -> None:
            ran[n] += 1

        return send

    send = define(app, "advisory")
    define(other, "rows")
    async with app.node(), other.node():
        jobs = await app.enqueue_many([send.job(n=n) for n in range(200)])
        for job in jobs:
            await job.wait(30)
    await other.close()
    assert ran == Counter(range(200))
    assert await sql("select max(attempt) from leasework.job_done") == [(1,)]


async def test_a_claim_that_is_none_is_refused(app: App) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'advisory'"):
        app.queue("mail", claim="advisery")
    with pytest.raises(ConfigError, match="a queue's name"):
        app.queue("", claim="advisory")


async def test_a_node_of_another_identity_gets_nothing_by_a_stale_list(bench: Bench) -> None:
    job = await bench.enqueue()
    stranger = NodeIdentity(uuid4(), "a", "r", "host", 1, "0", True, ("t",), {})
    assert await bench.store.claim_candidates(stranger.id, 1, [job], 5, None) == []
