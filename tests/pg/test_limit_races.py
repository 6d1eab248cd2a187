"""Claims of jobs with limits, in two real sessions at the same time.

A claim is stopped in its middle, between its look and its locks, by whoever holds its node's row.
Each test was seen to fail with its protection taken out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from leasework import App
from leasework.config import Polling
from leasework.model.outcome import Decision
from leasework.model.states import State
from leasework.pg.schema import migrate
from leasework.pg.sql import statement
from leasework.store.jobs import AckItem
from leasework.store.operation import Term
from tests.pg.bench import Bench
from tests.support import postgres
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]
FAST = 4.0
"""Seconds for what must not wait: below the lock_timeout of our sessions, which is five."""
BLOCKED = "select cardinality(pg_blocking_pids(%s)) > 0"


class Session:
    """A worker with a connection of its own. Its claims are open until it commits."""

    def __init__(self, bench: Bench, sql: Sql) -> None:
        self.bench, self.sql = bench, sql
        self.connection = bench.user
        self.after = ""

    async def claim(
        self, wanted: int = 10, hints: Sequence[str] | None = (), after: str = "",
        not_tasks: Sequence[str] = (), ahead: float = 0.0,
    ) -> list[dict[str, Any]]:  # fmt: skip
        cursor = self.connection.cursor(row_factory=dict_row)
        await cursor.execute(
            statement("limit/claim", "leasework").encode(),
            {
                "node": self.bench.node, "epoch": 1, "queue": "default", "asked_wanted": wanted,
                "not_tasks": list(not_tasks), "asked_hints": None if hints is None else list(hints),
                "asked_after": after, "asked_visits": 200, "asked_phase": 0.5,
                "asked_cursors": Jsonb({}),
                "ahead": ahead,
            },
        )  # fmt: skip
        return [row for row in await cursor.fetchall() if row["id"]]

    async def claim_and_commit(self, **options: Any) -> list[dict[str, Any]]:
        jobs = await self.claim(**options)
        await self.connection.commit()
        return jobs

    def begin_claim(self, **options: Any) -> asyncio.Task[list[dict[str, Any]]]:
        return asyncio.create_task(self.claim_and_commit(**options))

    async def blocked(self) -> None:
        async def is_blocked() -> bool:
            [[blocked]] = await self.sql(BLOCKED, [self.connection.info.backend_pid])
            return bool(blocked)

        await until_async(is_blocked, what="a session that waits for a lock")

    @asynccontextmanager
    async def stopped_after_its_look(
        self, **options: Any
    ) -> AsyncIterator[asyncio.Task[list[dict[str, Any]]]]:
        """A claim that has looked, and continues when the block ends."""
        async with await psycopg.AsyncConnection.connect(self.connection.info.dsn) as holder:
            await holder.execute(
                "select 1 from leasework.node where id = %s for update", [self.bench.node]
            )
            claim = self.begin_claim(**options)
            await self.blocked()
            yield claim

    async def ack(self, *jobs: dict[str, Any], state: State = State.COMPLETED) -> None:
        items = [AckItem(job["id"], job["claim_token"], Decision(state), 0.1) for job in jobs]
        await self.bench.store.ack(self.bench.node, items, None)


@pytest.fixture
async def two(app: App, migrated: str, sql: Sql) -> AsyncIterator[tuple[Session, Session]]:
    store = await app.store()
    async with AsyncExitStack() as stack:
        sessions = []
        for _ in range(2):
            user = await stack.enter_async_context(await psycopg.AsyncConnection.connect(migrated))
            sessions.append(Session(await Bench.make(store, user), sql))
        yield sessions[0], sessions[1]


class Limits:
    """Defines limits and enqueues jobs, by SQL."""

    def __init__(self, sql: Sql) -> None:
        self.sql = sql

    async def define(self, name: str, **columns: Any) -> None:
        row = {"concurrency": None, "rate": None, "burst": None, **columns, "name": name}
        await self.sql(
            "insert into leasework.limits (name, concurrency, rate, burst) "
            "values (%(name)s, %(concurrency)s, %(rate)s, %(burst)s)",
            row,
        )

    async def enqueue(self, *limits: Any, count: int = 1, **options: Any) -> list[UUID]:
        job = {"task": "t", "limits": list(limits), **options}
        rows = await self.sql("select id from leasework.enqueue(%s)", [json.dumps([job] * count)])
        return [row[0] for row in rows]

    async def make_rows(self, *keys: str) -> None:
        """As earlier claims have made them."""
        for key in keys:
            await self.sql("insert into leasework.limit_key (key, name) values (%s, %s)", [key] * 2)

    async def running(self, key: str) -> int:
        """Counted without leasework's functions."""
        rows = await self.sql("select lane from leasework.job where node is not null")
        return sum(key in lane.split("|")[1:] for [lane] in rows)


@pytest.fixture
def limits(sql: Sql) -> Limits:
    return Limits(sql)


Two = tuple[Session, Session]


# -- the second count ------------------------------------------------------------------------------
@pytest.mark.parametrize("known", [False, True], ids=["new key", "known key"])
async def test_a_claim_counts_again_what_was_claimed_after_its_look(
    two: Two, limits: Limits, known: bool
) -> None:
    a, b = two
    await limits.define("k", concurrency=2)
    await limits.enqueue("k", count=6)
    if known:
        await a.ack(*await a.claim_and_commit(wanted=1))
    async with b.stopped_after_its_look() as late:
        assert len(await a.claim_and_commit()) == 2
    assert await late == []
    assert await limits.running("k") == 2


async def test_tokens_are_counted_again_as_well(two: Two, limits: Limits) -> None:
    a, b = two
    await limits.define("k", rate=0.001, burst=3)
    await limits.enqueue("k", count=6)
    async with b.stopped_after_its_look() as late:
        assert len(await a.claim_and_commit()) == 3
    assert await late == []


async def test_a_claim_waits_for_the_keys_of_one_lane_if_all_are_locked(
    two: Two, limits: Limits
) -> None:
    a, b = two
    await limits.define("k", concurrency=2)
    await limits.enqueue("k", count=6)
    await a.ack(*await a.claim_and_commit(wanted=1))
    assert len(await a.claim(wanted=2)) == 2
    late = b.begin_claim()
    await b.blocked()
    await a.connection.commit()
    assert await late == []
    assert await limits.running("k") == 2


async def test_what_a_claim_that_rolled_back_had_taken_is_there_for_the_next(
    two: Two, limits: Limits
) -> None:
    a, b = two
    await limits.define("k", concurrency=2)
    await limits.enqueue("k", count=6)
    await a.ack(*await a.claim_and_commit(wanted=1))
    await a.claim(wanted=2)
    late = b.begin_claim()
    await b.blocked()
    await a.connection.rollback()
    assert len(await late) == 2


# -- locks of keys ---------------------------------------------------------------------------------
async def test_a_key_that_another_claim_holds_is_left_to_it_without_waiting(
    two: Two, limits: Limits
) -> None:
    a, b = two
    await limits.define("k", concurrency=2)
    await limits.define("l", concurrency=2)
    await limits.define("m", concurrency=9)
    await limits.make_rows("k", "l", "m")
    await limits.enqueue("k", count=3)
    assert len(await a.claim(wanted=1)) == 1
    await limits.enqueue("l", count=3)
    await limits.enqueue("k", "m")  # one of its keys is held
    async with asyncio.timeout(FAST):
        jobs = await b.claim_and_commit()
    assert [job["lane"] for job in jobs] == ["|l", "|l"]
    await a.connection.commit()


async def test_jobs_with_the_same_two_keys_in_opposite_order_do_not_deadlock(
    two: Two, limits: Limits, migrated: str
) -> None:
    a, b = two
    await limits.define("k", concurrency=10)
    await limits.define("l", concurrency=10)
    await limits.make_rows("k", "l")
    await limits.enqueue("k", "l", count=2)
    await limits.enqueue("l", "k", count=2)
    async with (
        await psycopg.AsyncConnection.connect(migrated) as k,
        await psycopg.AsyncConnection.connect(migrated) as ell,
    ):
        lock = "select 1 from leasework.limit_key where key = %s for no key update"
        await k.execute(lock, ["k"])
        await ell.execute(lock, ["l"])
        first = a.begin_claim(wanted=2)
        await a.blocked()
        second = b.begin_claim(wanted=2, after="|k|l")
        await b.blocked()
        await ell.rollback()
        await k.rollback()
        found = [len(await first), len(await second)]
    assert sum(found) >= 2  # and neither was ended as a deadlock
    assert len(await a.claim_and_commit()) == 4 - sum(found)


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_two_workers_claim_first_of_a_new_key(
    two: Two, limits: Limits, commits: bool
) -> None:
    a, b = two
    await limits.define("k", concurrency=1)
    await limits.enqueue({"limit": "k", "key": "new"}, count=3)
    assert len(await a.claim()) == 1
    late = b.begin_claim()
    await b.blocked()
    await (a.connection.commit() if commits else a.connection.rollback())
    assert len(await late) == (0 if commits else 1)
    assert await b.claim_and_commit() == []
    assert await limits.running("k:new") == 1


async def test_a_claim_of_many_new_keys_makes_all_their_rows(two: Two, limits: Limits) -> None:
    a, _ = two
    await limits.define("k", concurrency=1)
    for number in range(20):
        await limits.enqueue({"limit": "k", "key": number}, count=2)
    assert len(await a.claim_and_commit(wanted=50, hints=None)) == 20


async def test_a_keys_row_that_is_deleted_beside_a_claim(
    two: Two, limits: Limits, sql: Sql, migrated: str
) -> None:
    """Deleting an idle key is allowed at any time: the next claim makes it again, and counts."""
    a, b = two
    await limits.define("k", concurrency=2)
    await limits.enqueue("k", count=6)
    await a.claim_and_commit(wanted=1)
    async with b.stopped_after_its_look() as late:
        await sql("delete from leasework.limit_key")
    assert len(await late) == 1
    assert await limits.running("k") == 2
    async with await psycopg.AsyncConnection.connect(migrated) as pruner:
        await pruner.execute("delete from leasework.limit_key")
        await sql("update leasework.limits set set_concurrency = 3")
        late = b.begin_claim()
        await b.blocked()
        await pruner.commit()
    assert await late == []  # the row that it waited for is gone
    assert len(await b.claim_and_commit()) == 1
    assert await limits.running("k") == 3


# -- late enqueues ---------------------------------------------------------------------------------
async def test_an_enqueue_that_commits_after_its_key_was_drained_is_found(
    two: Two, limits: Limits, migrated: str
) -> None:
    a, b = two
    await limits.define("k", concurrency=1)
    await limits.enqueue("k", count=2)
    async with await psycopg.AsyncConnection.connect(migrated) as user:
        job = '{"task": "t", "limits": ["k"]}'
        await user.execute("select leasework.enqueue(%s)", [job])
        for session in (a, b):
            [found] = await session.claim_and_commit()
            await session.ack(found)
        for session in (a, b):  # both pass over its place
            assert await session.claim_and_commit() == []
        await user.commit()
    assert len(await a.claim_and_commit(after="|k")) == 1  # from wherever its walk has come


async def test_a_node_runs_a_job_that_commits_late(app: App, migrated: str) -> None:
    ran: list[int] = []
    one = app.limit("one", concurrency=1)

    @app.task(limits=[one])
    async def count(number: int) -> None:
        ran.append(number)

    async with (
        await psycopg.AsyncConnection.connect(migrated) as user,
        app.node(),
    ):
        await count.using(on=user).enqueue(1)
        for number in range(2, 6):
            await count.enqueue(number)
        await until_async(lambda: len(ran) == 4, what="the other jobs of the key")
        await user.commit()
        await until_async(lambda: 1 in ran, what="the job that was committed late")


async def test_no_enqueue_waits_for_200_open_transactions_and_a_claim_of_its_key() -> None:
    job = '{"task": "t", "limits": ["k"]}'
    with (
        postgres.server(settings={"max_connections": "230"}) as server,
        postgres.database(server.dsn) as dsn,
    ):
        app = App(dsn)
        await migrate.apply(app.settings)
        async with AsyncExitStack() as stack:

            async def session() -> psycopg.AsyncConnection[Any]:
                connection = await psycopg.AsyncConnection.connect(dsn)
                await stack.enter_async_context(connection)
                await connection.execute("set lock_timeout = 1")  # whoever waits for a lock fails
                return connection

            last = await session()
            await last.execute("insert into leasework.limits (name, concurrency) values ('k', 1)")
            await last.execute("insert into leasework.limit_key (key, name) values ('k', 'k')")
            await last.execute("select leasework.enqueue(%s)", [job])
            await last.commit()
            claimer = await session()
            holder = Session(await Bench.make(await app.store(), claimer), AsyncMock())
            assert len(await holder.claim()) == 1  # holds the key's row
            for _ in range(200):
                await (await session()).execute("select leasework.enqueue(%s)", [job])
            await last.execute("select leasework.enqueue(%s)", [job])
            await last.commit()
        await app.close()


# -- what ends a claim -----------------------------------------------------------------------------
async def test_a_worker_that_dies_after_its_ack_takes_no_room_with_it(
    two: Two, limits: Limits
) -> None:
    """Its hint is lost. The walk of another worker finds the lane."""
    a, b = two
    await limits.define("k", concurrency=1)
    await limits.enqueue("k", count=2)
    await a.ack(*await a.claim_and_commit())
    assert len(await b.claim_and_commit(hints=())) == 1


async def test_a_limit_is_lowered_below_what_runs_and_raised_again(
    two: Two, limits: Limits
) -> None:
    a, b = two
    store = a.bench.store
    await limits.define("k", concurrency=3)
    await limits.enqueue("k", count=9)
    jobs = await a.claim_and_commit()
    assert len(jobs) == 3
    await store.set_limit("k", None, 1, None, None, None, False, None)
    for ended in jobs[:2]:
        assert await b.claim_and_commit(hints=None) == []  # without an error, too
        await a.ack(ended)
    assert await b.claim_and_commit() == []
    await a.ack(jobs[2])
    assert len(await b.claim_and_commit()) == 1
    await store.set_limit("k", None, 2, None, None, None, False, None)
    assert len(await a.claim_and_commit()) == 1
    await store.set_limit("k", None, None, None, None, None, True, None)
    assert len(await a.claim_and_commit()) == 1


@pytest.mark.parametrize("of_key", [False, True], ids=["limit", "key"])
async def test_a_change_between_the_look_and_the_locks_is_obeyed(
    two: Two, limits: Limits, of_key: bool
) -> None:
    a, b = two
    await limits.define("k", concurrency=5)
    used: Any = {"limit": "k", "key": "7"} if of_key else "k"
    key = "7" if of_key else None
    await limits.enqueue(used, count=9)
    async with b.stopped_after_its_look() as late:
        await a.bench.store.set_limit("k", key, 2, None, None, None, False, None)
    assert len(await late) == 2
    async with b.stopped_after_its_look(hints=None) as late:
        await a.bench.store.set_limit("k", key, 4, None, None, True, False, None)
    assert await late == []


async def rescued(session: Session, job: dict[str, Any], sql: Sql) -> None:
    await sql("delete from leasework.node where id = %s", [session.bench.node])
    assert await session.bench.store.rescue([session.bench.node], 9, 10, None)


async def given_back(session: Session, job: dict[str, Any], sql: Sql) -> None:
    claim = (job["id"], job["claim_token"])
    assert await session.bench.store.give_back(session.bench.node, [claim]) == 1


async def given_back_unknown(session: Session, job: dict[str, Any], sql: Sql) -> None:
    assert await session.bench.store.give_back_unknown(session.bench.node, 1, []) == 1


async def requeued(session: Session, job: dict[str, Any], sql: Sql) -> None:
    state = await session.bench.store.requeue(job["id"], job["claim_token"])
    assert state is State.AVAILABLE


async def staged(session: Session, job: dict[str, Any], sql: Sql) -> None:
    await session.ack(job, state=State.RETRYABLE)
    await sql("update leasework.job set run_at = now()")
    await sql("insert into leasework.fence (name, token) values ('app', 7)")
    found = await session.bench.store.stage(Term("app", 7), 10, None)
    assert found.count == 1


async def retried_by_hand(session: Session, job: dict[str, Any], sql: Sql) -> None:
    await session.ack(job, state=State.RETRYABLE)
    assert await session.bench.store.retry(job["id"], None) == "waiting"


async def run_again(session: Session, job: dict[str, Any], sql: Sql) -> None:
    await session.ack(job)
    assert await session.bench.store.retry(job["id"], None) == "finished"


async def replaced(session: Session, job: dict[str, Any], sql: Sql) -> None:
    await session.ack(job, state=State.RETRYABLE)
    again = {"task": "t", "unique": "u", "on_conflict": "replace", "limits": ["k"]}
    await sql("select leasework.enqueue(%s)", [json.dumps(again)])


WAYS = [
    rescued, given_back, given_back_unknown, requeued, staged, retried_by_hand, run_again, replaced,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
async def test_a_job_comes_back_into_its_lane(
    two: Two, limits: Limits, sql: Sql, way: Callable[..., Awaitable[None]]
) -> None:
    a, b = two
    await limits.define("k", concurrency=1)
    [job] = await limits.enqueue("k", unique="u")
    [claimed] = await a.claim_and_commit()
    await way(a, claimed, sql)
    [row] = await sql("select id, ready, held_because, lane, node from leasework.job")
    assert row == (job, False, "limit", "|k", None)
    assert await b.bench.claim() == []  # nobody gets it past its limit
    other = await limits.enqueue("k")
    [again] = await b.claim_and_commit()
    assert again["id"] == job or way in (run_again, replaced)
    assert again["id"] in (job, *other)
    assert await b.claim_and_commit() == []


# -- buckets ---------------------------------------------------------------------------------------
BUCKET = """
insert into leasework.limit_key (key, name, tokens, filled_at)
values ('k', 'k', %(tokens)s, clock_timestamp() + make_interval(secs => %(seconds)s))
on conflict (key) do update set tokens = excluded.tokens, filled_at = excluded.filled_at
"""


async def test_a_bucket_is_not_fuller_than_its_burst_after_idleness(
    two: Two, limits: Limits, sql: Sql
) -> None:
    a, b = two
    await limits.define("k", rate=0.01, burst=3)
    await limits.enqueue("k", count=9)
    await sql(BUCKET, {"tokens": 0, "seconds": -86400})
    async with b.stopped_after_its_look() as late:
        assert len(await a.claim_and_commit()) == 3
    assert await late == []


async def test_a_clock_that_was_set_back_fills_nothing_and_empties_nothing(
    two: Two, limits: Limits, sql: Sql
) -> None:
    a, b = two
    await limits.define("k", rate=10, burst=3)
    await limits.enqueue("k", count=9)
    await sql(BUCKET, {"tokens": 2, "seconds": 3600})
    assert len(await a.claim_and_commit()) == 2
    [[behind]] = await sql("select filled_at < clock_timestamp() from leasework.limit_key")
    assert behind  # from now on it fills by the new clock
    await sql(BUCKET, {"tokens": 0, "seconds": 3600})
    assert await b.claim_and_commit() == []
    # each worker does this once a minute
    await a.bench.store.sync_limits("fire", [], [], [], True, None)
    await until_async(b.claim_and_commit, what="a job after the bucket's time was put right")


async def test_overrides_in_the_middle_of_a_bucket(two: Two, limits: Limits, sql: Sql) -> None:
    a, b = two
    store = a.bench.store
    await limits.define("k", rate=0.01, burst=10)
    await limits.enqueue("k", count=30)
    assert len(await a.claim_and_commit(wanted=1)) == 1
    async with b.stopped_after_its_look(wanted=30) as late:
        await store.set_limit("k", None, None, None, 2.0, None, False, None)
    assert len(await late) == 2  # nine are in the bucket
    await sql(BUCKET, {"tokens": 0, "seconds": -100})
    assert len(await a.claim_and_commit()) == 1  # 100 s at the rate of the code
    await sql(BUCKET, {"tokens": 0, "seconds": -100})
    async with b.stopped_after_its_look() as late:
        await store.set_limit("k", None, None, 0.001, None, None, False, None)
    assert await late == []
    await store.set_limit("k", None, None, None, None, None, True, None)
    await sql(BUCKET, {"tokens": 0, "seconds": -5000})
    assert len(await b.claim_and_commit(wanted=30)) == 10


# -- a worker alone --------------------------------------------------------------------------------
CLAIMS = """
select pid from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and query like '%claim_limited%'
"""


async def test_a_worker_settles_a_lost_claim_of_limited_jobs_though_nothing_else_wakes_it(
    dsn: str, migrated: str, sql: Sql
) -> None:
    """The jobs of the lost claim would keep the room of their keys until the producer's poll."""
    app = App(dsn, polling=Polling(listening=600.0))
    ran: list[int] = []
    one = app.limit("one", concurrency=1)

    @app.task(limits=[one])
    async def count(number: int) -> None:
        ran.append(number)

    async with app.node():
        await count.enqueue(1)
        await until_async(lambda: ran == [1], what="the first job")
        async with await psycopg.AsyncConnection.connect(migrated) as holder:
            await holder.execute("select 1 from leasework.limit_key for update")
            await count.enqueue(2)
            [[pid]] = await until_async(lambda: sql(CLAIMS), what="a claim")
            await sql("select pg_terminate_backend(%s)", [pid])
        await until_async(lambda: ran == [1, 2], what="the second job")
    await app.close()


@pytest.mark.parametrize("how", ["paused", "locked"])
async def test_lanes_of_which_nothing_can_start_do_not_hold_up_a_worker_with_one_slot(
    app: App, migrated: str, sql: Sql, how: str
) -> None:
    """It tries all lanes that seem to have room before it rests."""
    ran: list[str] = []
    by_key = app.limit("by_key", concurrency=1, key="key")

    @app.task(limits=[by_key])
    async def stuck(key: str) -> None:
        ran.append(key)

    @app.task(limits=[by_key])
    async def free(key: str) -> None:
        ran.append(key)

    await app.enqueue_many([stuck.job(f"a{number}") for number in range(150)])
    async with await psycopg.AsyncConnection.connect(migrated) as user:
        if how == "paused":
            await (await app.store()).pause("task", stuck.name, True, "by ann", None)
        else:
            await user.execute("select 1 from leasework.job for update")
        async with app.node(queues={"default": 1}):
            await free.enqueue("z")
            await until_async(lambda: ran == ["z"], what="the job of the last lane")
