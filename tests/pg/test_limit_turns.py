"""Whose turn it is: lanes, tenants and queues that wait beside full ones, or for the same key."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from unittest.mock import AsyncMock

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from leasework import App
from leasework.config import Settings
from leasework.jobs.limited import POLL_SECONDS, LaneWalk
from leasework.pg.schema import migrate
from leasework.store.limits import Asked, Walk
from tests.pg.bench import Bench
from tests.pg.test_limits import obeyed
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[Any]]


async def test_a_key_behind_many_full_ones_has_its_turn_while_others_go_on(app: App) -> None:
    ended: Counter[str] = Counter()
    before: list[int] = []
    names = ("ahead", "full", "last")  # in the order of the walk
    limits = {name: app.limit(name, concurrency=1, key="key") for name in names}

    @app.task
    async def run(key: str) -> None:
        if key == "last":
            before.append(ended.total())
        ended[key] += 1

    def jobs(limit: str, keys: Iterable[Any]) -> list[Any]:
        return [run.using(limits=[limits[limit]]).job(str(key)) for key in keys]

    async with app.node():
        pass  # it writes the definitions
    await (await app.operator("ann", "test")).limits.pause("full")
    await app.enqueue_many(jobs("full", range(1000)))
    await app.enqueue_many(jobs("ahead", [1, 2] * 400))
    await app.enqueue_many(jobs("last", ["last"]))
    async with app.node(queues={"default": 2}):
        await until_async(lambda: before, 60, "the last key")
    assert before[0] < 400, "it did not wait for those that are never out of jobs"


@pytest.mark.parametrize("lanes", [("a|vendor", "b|vendor"), ("|vendor", "|vendor|customer:b")])
async def test_lanes_that_share_a_full_key_take_turns(
    bench: Bench, sql: Sql, lanes: tuple[str, str]
) -> None:
    """As a worker claims between two walks, which is often if jobs are short."""
    await _fill(sql, {"vendor": 1, "customer": 9}, lanes)
    walk, ended = LaneWalk(), ["|vendor"]
    turns: Counter[str | None] = Counter()
    while turns.total() < 100:
        asked = walk.asks(10, ended, now=1.0)
        assert asked, "lanes in which jobs have ended are worth a claim"
        found = await bench.store.claim_limited(bench.node, 1, "default", asked, [], 0.0)
        walk.answered(found, asked, now=1.0)
        assert len(found.jobs) == 1
        await bench.ack(*found.jobs)
        ended = [job.lane for job in found.jobs if job.lane]
        turns.update(ended)
    assert all(45 <= turns[lane] <= 55 for lane in lanes)


async def test_queues_that_share_a_full_key_take_turns(app: App) -> None:
    order: list[str] = []
    vendor = app.limit("vendor", concurrency=1)

    @app.task(limits=[vendor])
    async def call(queue: str) -> None:
        order.append(queue)

    await app.enqueue_many([call.using(queue=q).job(q) for q in "ab" for _ in range(200)])
    async with app.node(queues={"a": 5, "b": 5}):
        await until_async(lambda: len(order) >= 200, what="half of the jobs")
    assert min(Counter(order[:200])[queue] for queue in "ab") >= 40


async def test_a_walk_over_full_lanes_rests_and_ended_jobs_give_back_all_their_room(
    bench: Bench, sql: Sql
) -> None:
    await _fill(sql, {"one": 5}, ["|one"])
    walk, ended = LaneWalk(), ["|one"]

    async def claims(now: float) -> int:
        """Claim until it rests. Return the number of jobs."""
        jobs = 0
        while asked := walk.asks(10, ended, now):
            found = await bench.store.claim_limited(bench.node, 1, "default", asked, [], 0)
            walk.answered(found, asked, now)
            jobs += len(found.jobs)
            ended.clear()
        return jobs

    assert await claims(now=1.0) == 5
    assert await claims(now=2.0) == 0
    assert walk.look_at >= 2.0 + POLL_SECONDS, "no bucket fills: nothing to come back for sooner"
    await sql("update leasework.job set ready = false, held_because = 'limit', node = null")
    asked = Asked(10, ["|one"], "", 0, 0, {})
    found = await bench.store.claim_limited(bench.node, 1, "default", asked, [], 0)
    assert len(found.jobs) == 5


def test_a_walk_that_waited_for_a_slot_rests_no_longer_for_that() -> None:
    walk = LaneWalk()
    assert walk.asks(0, [], now=1.0)
    asked = walk.asks(5, [], now=9.0)
    assert asked
    walk.answered(Walk([], passed=1, seen=1), asked, now=9.0)
    assert walk.look_at == 9.0 + POLL_SECONDS


async def _fill(sql: Sql, limits: dict[str, int], lanes: Iterable[str], each: int = 100) -> None:
    """Put so many jobs in each lane."""
    for limit in limits.items():
        await sql("insert into leasework.limits (name, concurrency) values (%s, %s)", limit)
    await sql(
        "insert into leasework.job (id, queue, task_name, payload, lane, ready, held_because)"
        " select leasework.new_id(), 'default', 't', '{}', lane, false, 'limit'"
        " from unnest(%s::text[]) lane, generate_series(1, %s)",
        [list(lanes), each],
    )


async def test_lanes_of_a_paused_task_hold_up_no_other_one(app: App) -> None:
    ran = asyncio.Event()
    first, last = (app.limit(name, concurrency=1, key="key") for name in ("first", "last"))

    @app.task(limits=[first])
    async def stays(key: int) -> None: ...

    @app.task(limits=[last])
    async def runs(key: int) -> None:
        ran.set()

    await app.enqueue_many([stays.job(n) for n in range(1000)])
    await (await app.operator("ann", "test")).tasks.pause(stays.name)
    async with app.node(queues={"default": 1}) as node:
        await obeyed(node, "task", stays.name)
        claim = node._claimer.claim_limited = AsyncMock(side_effect=node._claimer.claim_limited)
        await runs.enqueue(1)
        await asyncio.wait_for(ran.wait(), 60)
    assert claim.await_count < 100, "it did not ask once for each of the lanes"


@pytest.mark.parametrize("slots", [1, 40])
@pytest.mark.parametrize(
    ("keys", "weights"),
    [
        ({"a": 20, "b": 1}, {"a": 1, "b": 1}),
        ({"a": 300, "b": 2, "c": 1}, {"a": 1, "b": 1, "c": 3}),
        ({f"t{n}": 1 + 9 * (n == 7) for n in range(60)}, {"t3": 4, "t7": 2}),
    ],
)
async def test_tenants_with_many_keys_and_with_few_share_by_weight(
    bench: Bench, sql: Sql, keys: dict[str, int], weights: dict[str, float], slots: int
) -> None:
    lanes = [f"{tenant}|url:{tenant}{n}" for tenant, many in keys.items() for n in range(many)]
    await _fill(sql, {"url": 5000}, [])
    for tenant, many in keys.items():
        await _fill(sql, {}, [f"{tenant}|url:{tenant}{n}" for n in range(many)], 1 + 1500 // many)
    for tenant, weight in weights.items():
        row = "default", tenant, weight
        await sql("insert into leasework.weight (queue, tenant, weight) values (%s, %s, %s)", row)
    starts = await _starts(bench, 1000, slots)
    whole = sum(weights.get(tenant, 1) for tenant in keys)
    for tenant in keys:
        fair = starts.total() * weights.get(tenant, 1) / whole
        got = sum(n for lane, n in starts.items() if lane.startswith(f"{tenant}|"))
        assert abs(got - fair) <= max(0.05 * fair, 3), (tenant, got, fair)
    several = [starts[lane] for lane in lanes if lane.startswith("a|")]
    assert len(several) != 20 or min(several) > 12, "the keys of a tenant take turns"


async def test_tenants_behind_many_with_the_weight_zero_have_their_turns(
    bench: Bench, sql: Sql
) -> None:
    still = [f"m{number}" for number in range(500)]
    await _fill(sql, {}, [f"{tenant}|" for tenant in ["a", *still, "z"]], 50)
    for tenant in still:
        row = "default", tenant
        await sql("insert into leasework.weight (queue, tenant, weight) values (%s, %s, 0)", row)
    starts = await _starts(bench, 60, 2)
    assert set(starts) == {"a|", "z|"} and min(starts.values()) > 20


async def test_the_keys_of_hundreds_of_tenants_take_turns(bench: Bench, sql: Sql) -> None:
    lanes = [f"t{tenant}|url:{tenant}{key}" for tenant in range(400) for key in "abc"]
    await _fill(sql, {"url": 1000}, lanes, 10)
    starts = await _starts(bench, 3600, 40)
    assert all(2 <= starts[lane] <= 4 for lane in lanes)


async def test_tenants_share_on_a_server_that_sorts_by_a_language(
    own_postgres: Callable[..., Any],
) -> None:
    server = own_postgres("15")  # Debian's has ICU
    make = "create database shop template template0 locale_provider icu icu_locale 'en-US'"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"{make} locale 'C.UTF-8' encoding 'UTF8'")
    dsn = make_conninfo(server.dsn, dbname="shop")
    await migrate.apply(Settings(dsn=dsn))
    tenants = ["a", "A", "ä", "a b", "a-b", "ab", "{x}", "}", "~", "_a", "Z", "\U0001f600"]
    connect = psycopg.AsyncConnection.connect
    app = App(dsn)
    async with await connect(dsn, autocommit=True) as user:

        async def sql(text: str, params: Any = None) -> None:
            await user.execute(text.encode(), params)

        await _fill(sql, {"url": 5000}, [f"{t}|url:{n}" for t in tenants for n in "aBä{"])
        await _fill(sql, {}, [f"{t}|" for t in tenants])
        starts = await _starts(await Bench.make(await app.store(), user), 240, 12)
        await app.close()
    shares = Counter[str]()
    for lane, count in starts.items():
        shares[lane.split("|")[0]] += count
    assert set(shares) == set(tenants) and min(shares.values()) >= 18, shares


async def _starts(bench: Bench, most: int, slots: int) -> Counter[Any]:
    """Claim as a worker does whose jobs end at once. Return how many started, by lane."""
    walk, ended, now = LaneWalk(), list[str](), 1.0
    starts: Counter[Any] = Counter()
    while starts.total() < most:
        asked = walk.asks(slots, ended, now)
        if asked is None:
            now = walk.look_at
            continue
        found = await bench.store.claim_limited(bench.node, 1, "default", asked, [], 0.0)
        walk.answered(found, asked, now)
        await bench.ack(*found.jobs)
        if ended:  # the first claim does not know that there is plenty
            starts.update(job.lane for job in found.jobs)
        ended = [job.lane for job in found.jobs if job.lane] or ended
    return starts
