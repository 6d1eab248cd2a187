"""Limits by key, rates, costs, throttling and fair queues, through a node in this process."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leasework import App, Context, Rate, Throttled
from leasework.app.planning import derived_release
from leasework.errors import BadJob, ConfigError
from leasework.node import Node
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]


class Counted:
    """How many run at once, by key; the most of each; and when each started."""

    def __init__(self) -> None:
        self.now: Counter[Any] = Counter()
        self.most: Counter[Any] = Counter()
        self.starts: dict[Any, list[float]] = defaultdict(list)
        self.ended = 0

    async def run(self, key: Any, seconds: float = 0.01) -> None:
        self.now[key] += 1
        self.most[key] = max(self.most[key], self.now[key])
        self.starts[key].append(time.monotonic())
        await asyncio.sleep(seconds)
        self.now[key] -= 1
        self.ended += 1

    async def until(self, ended: int) -> None:
        async def all_have() -> bool:
            return self.ended >= ended

        await until_async(all_have, what=f"{ended} jobs, of which {self.ended} have ended")


@pytest.mark.every_loop
async def test_two_at_a_time_for_each_customer_and_all_run(app: App) -> None:
    counted = Counted()
    customer = app.limit("customer", concurrency=2, key="customer_id")

    @app.task(limits=[customer])
    async def sync(customer_id: int | None) -> None:
        await counted.run(customer_id)

    await app.enqueue_many([sync.job(n % 5) for n in range(40)])
    await app.enqueue_many([sync.job(None) for _ in range(20)])
    async with app.node():
        await counted.until(60)
    assert max(counted.most[n] for n in range(5)) == 2
    assert counted.most[None] > 2  # unlimited


async def test_two_limits_of_one_job_both_hold(app: App) -> None:
    counted, total = Counted(), Counted()
    vendor = app.limit("vendor", concurrency=3)
    customer = app.limit("customer", concurrency=2, key=lambda arguments: arguments["who"])

    @app.task(limits=[vendor, customer])
    async def call(who: str) -> None:
        await asyncio.gather(counted.run(who), total.run("all"))

    await app.enqueue_many([call.job(f"a|{n % 4}%") for n in range(40)])
    async with app.node():
        await counted.until(40)
    assert total.most["all"] <= 3
    assert max(counted.most.values()) <= 2


@pytest.mark.every_loop
async def test_a_rate_spaces_the_starts(app: App, sql: Sql) -> None:
    """The last of 21 jobs starts 20 spaces of 50 ms after the first claim, however busy the machine
    is."""
    counted = Counted()
    api = app.limit("api", rate=Rate(20, per=1.0, burst=1))

    @app.task(limits=[api])
    async def call() -> None:
        await counted.run("api", 0)

    await app.enqueue_many([call.job() for _ in range(21)])
    began = time.monotonic()
    async with app.node():
        await counted.until(21)
    assert counted.starts["api"][-1] - began >= 0.99  # two clocks


async def test_a_cost_is_charged_and_none_is_over_the_burst(app: App) -> None:
    tokens = app.limit("llm", rate=Rate(1000, per=1.0), cost="tokens")
    counted = Counted()

    @app.task(limits=[tokens])
    async def ask(tokens: int) -> None:
        await counted.run("llm", 0)

    with pytest.raises(BadJob, match="burst of 1000"):
        await ask.enqueue(tokens=1001)
    await app.enqueue_many([ask.job(tokens=500) for _ in range(6)])
    began = time.monotonic()
    async with app.node():
        await counted.until(6)
    starts = counted.starts["llm"]
    # two at once, and the other four as the bucket fills with 1,000 a second
    assert starts[-1] - began >= 1.9


async def test_a_throttled_job_closes_its_key_for_everybody_and_counts_no_attempt(
    app: App, sql: Sql
) -> None:
    vendor = app.limit("vendor", concurrency=1, key="host")
    seen: list[tuple[str, int]] = []

    @app.task(limits=[vendor], max_attempts=1)
    async def call(ctx: Context, host: str, number: int) -> None:
        seen.append((host, number))
        if number == 1 and seen.count((host, number)) == 1:
            raise vendor.throttled(retry_after=2.0)

    await call.enqueue("a", 1)
    await call.enqueue("a", 2)
    await call.enqueue("b", 3)
    async with app.node():
        await until_async(lambda: _is(("b", 3) in seen), what="the other key's job")
        await until_async(lambda: _closed(sql, "vendor:a", -60), what="the key is closed")
        early = ("a", 2) in seen
        assert not early or not await _closed(sql, "vendor:a", 0)
        await until_async(lambda: _is(len(seen) == 4), what="the jobs of the closed key")
    assert [n for h, n in seen if h == "a"] == [1, 1, 2]  # the throttled one keeps its place
    assert (
        await sql(
            "select count(*) from leasework.job_done where state = 'completed' and attempt = 1"
        )
    )[0][0] == 3


async def _is(value: bool) -> bool:
    return value


@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_a_handler_outside_of_the_loop_is_throttled_too(
    app: App, sql: Sql, executor: Any
) -> None:
    vendor = app.limit("vendor", concurrency=1)
    job = await app.task(limits=[vendor], executor=executor)(refused).enqueue()
    async with app.node():
        await until_async(lambda: _closed(sql, "vendor"), what="the limit is closed")
    assert (await app.get(job.id)).attempt == 0


def refused() -> None:
    raise Throttled("vendor", 60.0)


async def _closed(sql: Sql, key: str, seconds: float = 50.0) -> bool:
    """The key stays closed for longer than ``seconds``."""
    rows = await sql(
        "select closed_until > now() + %s * interval '1 s' from leasework.limit_key where key = %s",
        (seconds, key),
    )
    return rows == [(True,)]


async def test_throttled_without_the_limit_is_a_failure(app: App) -> None:
    vendor = app.limit("vendor", concurrency=1)

    @app.task(max_attempts=1)
    async def call() -> Throttled:
        return vendor.throttled(5)

    job = await call.enqueue()
    async with app.node():
        with pytest.raises(Exception, match="which the job does not have"):
            await job.wait(timeout=20)


async def test_a_fair_queue_shares_by_weight(app: App) -> None:
    order: list[str] = []
    app.queue("imports", fair="tenant", weight={"gold": 3})

    @app.task(queue="imports")
    async def load(tenant: str) -> None:
        order.append(tenant)

    await app.enqueue_many([load.job("bulk") for _ in range(400)])
    await app.enqueue_many([load.job("gold") for _ in range(400)])
    async with app.node(queues={"imports": 10}):
        await until_async(lambda: _is(len(order) >= 400), what="half of the jobs")
    share = Counter(order[:400])["gold"] / 400
    assert 0.70 <= share <= 0.80


async def test_jobs_without_limits_and_with_limits_share_the_slots(app: App) -> None:
    order: list[str] = []
    one = app.limit("one", concurrency=10)

    @app.task(limits=[one])
    async def limited() -> None:
        order.append("limited")
        await asyncio.sleep(0.002)

    @app.task
    async def plain() -> None:
        order.append("plain")
        await asyncio.sleep(0.002)

    await app.enqueue_many([plain.job() for _ in range(600)])
    await app.enqueue_many([limited.job() for _ in range(200)])
    for slots in (1, 4):
        order.clear()
        async with app.node(queues={"default": slots}):
            await until_async(lambda: _is(len(order) >= 100), what="some jobs")
        assert 10 <= order[:100].count("limited") <= 90


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "limits nothing"),
        ({"concurrency": 0}, "from 1"),
        ({"rate": 5}, "must be a Rate"),
        ({"concurrency": 1, "cost": "x"}, "needs a rate"),
        ({"concurrency": 1, "key": 7}, "name of an argument"),
    ],
)
def test_what_is_wrong_with_a_limit_is_said(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        App("postgresql:///x").limit("vendor", **given)


def test_a_third_limit_and_a_missing_argument_are_refused_with_words() -> None:
    app = App("postgresql:///x")
    limits = [app.limit(name, concurrency=1) for name in "abc"]
    by_key = app.limit("d", concurrency=1, key="customer_id")
    with pytest.raises(BadJob, match="at most 2"):
        app.task(limits=limits)(lambda: None)
    with pytest.raises(BadJob, match="'customer_id'"):
        app.task(limits=[by_key])(lambda custom_id: None)
    with pytest.raises(ConfigError, match="two limits are named"):
        app.limit("a", concurrency=2)


# -- live control ----------------------------------------------------------------------------------
async def test_a_paused_queue_task_limit_and_key_start_nothing_until_resumed(
    app: App, sql: Sql
) -> None:
    ran: list[str] = []
    customer = app.limit("customer", concurrency=5, key="who")

    @app.task(limits=[customer])
    async def limited(who: str) -> None:
        ran.append(who)

    @app.task
    async def plain() -> None:
        ran.append("plain")

    @app.task(queue="other")
    async def other() -> None:
        ran.append("other")

    on = await app.operator("ann", "test")
    async with app.node() as node:

        async def only(expected: set[str]) -> None:
            """Enqueue one of each. Those of ``expected`` run, and the others stay."""
            ran.clear()
            jobs = [limited.job("a"), limited.job("b"), plain.job(), other.job()]
            await app.enqueue_many(jobs)
            await until_async(lambda: _is(set(ran) >= expected), what=f"{expected}, of {ran}")
            assert set(ran) == expected

        async def left() -> None:
            await until_async(
                lambda: _waiting(sql, 0), what="the jobs that were held back have run"
            )

        everything = {"a", "b", "plain", "other"}
        await on.queues.pause("other", reason="maintenance")
        await obeyed(node, "queue", "other")
        await only(everything - {"other"})
        told = [found.sentence for found in await app.diagnose()]
        assert any(one.endswith(" by ann: maintenance") for one in told), told
        assert await on.queues.resume("other")
        assert not await on.queues.resume("other")
        await left()
        await on.tasks.pause(plain.name)
        await obeyed(node, "task", plain.name)
        await only(everything - {"plain"})
        await on.tasks.resume(plain.name)
        await left()
        await on.limits.pause("customer", key="a", reason="they asked")
        await only(everything - {"a"})
        await on.limits.pause("customer")
        await only(everything - {"a", "b"})
        await on.limits.resume("customer")
        await on.limits.reset("customer", key="a")
        await left()
        await only(everything)
    said = await sql(
        "select fields ->> 'who', fields ->> 'act', fields ->> 'on', fields ->> 'reason'"
        " from leasework.event where kind = 'person_acted' order by id"
    )
    assert ("ann", "pause", "queue other", "maintenance") in said
    assert ("ann", "pause", "limit customer, key a", "they asked") in said


async def test_a_claim_that_was_under_way_at_a_pause_starts_nothing(
    app: App, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    claimed, answered = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> None:
        ran.append("work")

    on = await app.operator("ann", "test")
    async with app.node() as node:
        store = node._claimer._store
        real = store.claim

        async def slow(*asked: Any) -> Any:
            found = await real(*asked)
            if found and not claimed.is_set():
                claimed.set()
                await answered.wait()
            return found

        monkeypatch.setattr(store, "claim", slow)
        await work.enqueue()
        await claimed.wait()
        await on.queues.pause("default")
        # as the heartbeat does, which may come before the answer to the claim
        node._claimer.pause(frozenset({("queue", "default")}))
        answered.set()

        async def returned() -> bool:
            rows = await sql("select node is null and ready, attempt from leasework.job")
            return bool(rows == [(True, 0)])

        await until_async(returned, what="the job is given back")
        assert not ran
        await on.queues.resume("default")
        await until_async(lambda: _waiting(sql, 0), what="the job has run")


async def obeyed(node: Node, kind: str, name: str) -> None:
    """Wait until the claims of a node have heard of a pause."""
    claimer = node._claimer
    paused = {"queue": lambda: claimer.paused, "task": lambda: claimer._paused_tasks}[kind]
    await until_async(lambda: _is(name in paused()), what="the pause arrived")


async def _waiting(sql: Sql, count: int) -> bool:
    return bool((await sql("select count(*) from leasework.job"))[0][0] == count)


async def test_what_a_person_sets_holds_until_it_is_reset(app: App, sql: Sql) -> None:
    counted = Counted()
    customer = app.limit("customer", concurrency=1, key="who")

    @app.task(limits=[customer])
    async def work(who: str) -> None:
        await counted.run(who, 0.05)

    on = await app.operator("ann", "test")
    async with app.node():
        await app.enqueue_many([work.job("a")])
        await counted.until(1)
        await on.limits.set("customer", concurrency=3)
        await on.limits.set("customer", concurrency=2, key="b")
        await app.enqueue_many([work.job(who) for who in "ab" for _ in range(8)])
        await counted.until(17)
        assert (counted.most["a"], counted.most["b"]) == (3, 2)
        await on.limits.reset("customer")
        await on.limits.reset("customer", key="b")
        counted.most.clear()
        await app.enqueue_many([work.job(who) for who in "ab" for _ in range(4)])
        await counted.until(25)
        assert (counted.most["a"], counted.most["b"]) == (1, 1)
    with pytest.raises(ConfigError, match=r"no such limit.*'customer'"):
        await on.limits.set("custmer", concurrency=1)
    with pytest.raises(ConfigError, match="nothing to set"):
        await on.limits.set("customer")


async def test_a_job_says_what_it_waits_for(app: App, sql: Sql) -> None:
    from leasework.watch.why import why_waiting

    customer = app.limit("customer", concurrency=1, key="who")
    ghost = app.limit("ghost", concurrency=1)
    release = asyncio.Event()

    @app.task(limits=[customer])
    async def work(who: str) -> None:
        await release.wait()

    @app.task(limits=[ghost])
    async def haunted() -> None: ...

    first, second = await app.enqueue_many([work.job("a|b"), work.job("a|b")])
    on = await app.operator("ann", "test")

    async def why(job: Any) -> str:
        record = await app.get(job.id)
        assert record.held_because in ("limit", None)
        more = await on.reports.job(job.id)
        keys = await on.reports.key_waits(job.id)
        nodes = await on.reports.nodes(10)
        return " ".join(why_waiting(record, more, nodes, keys, await on.reports.pauses()))

    unseen = await haunted.enqueue()
    with pytest.raises(ConfigError, match="no such limit"):
        await on.limits.pause("ghost")  # which would change nothing
    assert "No application has defined the limit 'ghost'" in await why(unseen)
    async with app.node():
        await until_async(lambda: _state(app, first, "running"), what="the first runs")
        assert "the limit 'customer', key 'a|b': 1 of 1 run" in await why(second)
        await on.limits.pause("customer")
        assert "A person has paused the limit 'customer'" in await why(second)
        await on.limits.resume("customer")
        release.set()
        await second.wait(timeout=30)


async def _state(app: App, job: Any, state: str) -> bool:
    return (await app.get(job.id)).state == state


# -- what a review found ---------------------------------------------------------------------------
async def test_weights_hold_when_slots_become_free_one_by_one(app: App) -> None:
    order: list[str] = []
    app.queue("imports", fair="tenant", weight={"gold": 3, "slow": 0.5})

    @app.task(queue="imports")
    async def load(tenant: str) -> None:
        order.append(tenant)

    for tenant in ("a", "gold", "slow"):
        await app.enqueue_many([load.job(tenant) for _ in range(300)])
    async with app.node(queues={"imports": 1}):
        await until_async(lambda: _is(len(order) >= 180), what="some of the jobs")
    share = Counter(order[:180])
    assert abs(share["gold"] / 180 - 3 / 4.5) <= 0.05
    assert abs(share["slow"] / 180 - 0.5 / 4.5) <= 0.05


async def test_a_queue_that_is_busy_with_limited_jobs_holds_up_neither_others_nor_a_stop(
    app: App,
) -> None:
    ran: Counter[str] = Counter()
    many, few = app.limit("many", concurrency=10), app.limit("few", concurrency=5)

    @app.task(queue="a", limits=[many])
    async def one() -> None:
        ran["a"] += 1

    @app.task(queue="b", limits=[few])
    async def other() -> None:
        ran["b"] += 1

    await app.enqueue_many([one.job() for _ in range(4000)])
    async with app.node(queues={"a": 50, "b": 5}):
        await until_async(lambda: _is(ran["a"] > 100), what="the first queue is busy")
        await app.enqueue_many([other.job() for _ in range(5)])
        await until_async(lambda: _is(ran["b"] == 5), what="the other queue's jobs")
        before = ran["a"]
    assert before < 4000 and ran["a"] < 4000, "it stopped with jobs left"


async def test_a_tenant_that_no_index_could_take_is_refused_at_once(app: App, sql: Sql) -> None:
    import json

    import psycopg

    for job in (
        {"task": "t", "tenant": "x" * 401},
        {"task": "t", "limits": [{"limit": "a", "key": "|" * 134}]},
    ):
        with pytest.raises(psycopg.Error, match="400 bytes"):
            await sql("select leasework.enqueue(%s)", (json.dumps(job),))
    with pytest.raises(BadJob, match="400 bytes"):
        app.queue("imports", fair="tenant")
        app.task(queue="imports")(_tenant).job("ü" * 201)
    widest = {"task": "t", "queue": "\U0001f418" * 200, "tenant": "x" * 400}
    widest["limits"] = [{"limit": n * 100, "key": "y" * 400} for n in "ab"]  # type: ignore[assignment]
    await sql("select leasework.enqueue(%s)", (json.dumps(widest),))


async def _tenant(tenant: str) -> None: ...


async def test_a_fair_queue_or_a_limit_that_the_task_cannot_have_is_refused() -> None:
    app, other = App("postgresql:///x"), App("postgresql:///x", name="other")
    app.queue("imports", fair="tenant_id")
    with pytest.raises(BadJob, match="needs the argument 'tenant_id'"):
        app.task(queue="imports")(_tenant).job("a")
    with pytest.raises(BadJob, match="not of this application"):
        app.task(limits=[other.limit("x", concurrency=1)])(_tenant)


async def test_a_key_that_nobody_uses_is_pruned_and_one_in_use_is_not(app: App, sql: Sql) -> None:
    customer = app.limit("customer", concurrency=1, key="who")
    release = asyncio.Event()

    @app.task(limits=[customer])
    async def work(who: str) -> None:
        if who == "stays":
            await release.wait()

    jobs = await app.enqueue_many([work.job("gone"), work.job("stays"), work.job("set")])
    on = await app.operator("ann", "test")
    async with app.node():
        await jobs[0].wait(30)
        await jobs[2].wait(30)
        await on.limits.set("customer", concurrency=2, key="set")
        await until_async(lambda: _state(app, jobs[1], "running"), what="a job of a key")
        store = await app.store()
        await store.prune({"events": 1, "ticks": 1, "attempts": 1, "history": 1}, 100, None)
        rows = await sql("select key from leasework.limit_key order by key")
        assert rows == [("customer:set",), ("customer:stays",)]
        release.set()


@pytest.mark.parametrize(
    ("header", "seconds"), [("12", 12.0), ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0)]
)
def test_a_header_says_for_how_long_a_limit_is_closed(header: str, seconds: float) -> None:
    limit = App("postgresql:///x").limit("vendor", concurrency=1)
    assert limit.throttled(header).seconds == seconds
    for wrong in ("soon", -1, None):
        with pytest.raises(BadJob, match="Retry-After"):
            limit.throttled(wrong)  # type: ignore[arg-type]


async def test_status_says_that_no_worker_of_a_queue_claims_its_limited_jobs(
    app: App, sql: Sql, dsn: str
) -> None:
    vendor = app.limit("vendor", concurrency=1)

    @app.task(limits=[vendor], name="limited")
    async def limited() -> None: ...

    await limited.enqueue()
    older = App(dsn)  # a release without limits

    @older.task(name="limited")
    async def plain() -> None: ...

    async with older.node():

        async def kinds() -> bool:
            return "limits_unworked" in [one.kind for one in await (await app.inspect()).problems()]

        await until_async(kinds, what="the problem")
    await older.close()


def test_a_derived_release_changes_with_the_limits_of_a_task() -> None:
    def release(*given: Any) -> str:
        app = App("postgresql:///x")
        limits = [app.limit("a", concurrency=1, key=key) for key in given]
        app.task(limits=limits, name="t")(_tenant)
        return derived_release(app.registry, {})

    assert len({release(), release(None), release("tenant")}) == 3
