"""Tags of jobs: from the code to the history, and the filters that find jobs by them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import psycopg
import pytest
from click.testing import CliRunner

from leasework import App, Deadline
from leasework.cli.root import root
from leasework.errors import BadJob
from leasework.model.deadline import Callback, Promise
from leasework.model.job import JobOptions
from leasework.web import dashboard
from tests.contract.world import IDS, World, plan, planned

TAGS = ["eu", "a, b", "NULL", "Ω'\"\\{}\n\t"]
ONE_TOO_MANY = [str(n) for n in range(11)]


# -- the store ------------------------------------------------------------------------------------
async def test_tags_keep_their_order_in_the_history_and_when_the_job_runs_again(world: World):
    job = await world.claimed(tags=TAGS)
    assert (await world.get(job.id)).tags == tuple(TAGS)
    await world.a.ack(job)
    assert await world.state(job.id) == "completed"
    assert (await world.get(job.id)).tags == tuple(TAGS)
    await world.a.store.retry(job.id, world.now)
    record = await world.get(job.id)
    assert (record.state, record.tags) == ("available", tuple(TAGS))


async def test_a_bulk_insert_takes_tags_as_they_are(world: World):
    job = IDS.new()
    await world.a.store.copy([(job.int, JobOptions("t", tags=TAGS), "{}", None)], 1)
    assert (await world.get(job)).tags == tuple(TAGS)


async def test_jobs_of_schedules_and_callbacks_have_tags(world: World):
    store, by_hand = world.a.store, IDS.new()
    term = await world.a.lead()
    promise = Promise(Callback("page", {"tags": ["page"]}), seconds=0.5)
    job = {**planned().job, "tags": ["nightly"], "deadline": promise.as_json()}
    await store.sync_schedules("default", "r1", [planned(job=job)], world.now)
    ticks = plan(None, 0)
    await store.fire(term, "default", [ticks], world.now)
    await store.run_schedule("default", "tick", by_hand, world.now)
    for made in (ticks.ticks[0].job, by_hand):
        assert made and (await world.get(made)).tags == ("nightly",)
    swept = await store.sweep(10, ticks.next_at)
    assert [(await world.get(breach.callback_job)).tags for breach in swept.breaches] == [
        ("page",)
    ] * 2


# -- an application -------------------------------------------------------------------------------
@pytest.fixture
async def app(dsn: str) -> AsyncIterator[App]:
    app = App(dsn)
    yield app
    await app.close()


async def test_a_jobs_tags_replace_those_of_its_task(app: App):
    @app.task(name="t", tags=["billing", "eu"])
    async def work(n: int = 0) -> None: ...

    usual, own, none = (
        await work.enqueue(),
        await work.using(tags=("us",)).enqueue(),
        await work.using(tags=[]).enqueue(),
    )
    many = await app.enqueue_many(work.job(n=n) for n in range(30))
    untagged = await app.enqueue_many([work.using(tags=[]).job(n=n) for n in range(30)])
    assert (await usual.get()).tags == ("billing", "eu")
    assert (await own.get()).tags == ("us",) and (await none.get()).tags == ()
    found = await app.jobs(tag="billing")
    assert [record.id for record in found] == [job.id for job in (*reversed(many), usual)]
    assert (await untagged[0].get()).tags == ()


async def test_a_schedule_and_a_callback_take_the_tags_of_their_task(app: App):
    @app.task(name="page", tags=["page"])
    async def page(breach: dict[str, Any]) -> None: ...

    @app.every(seconds=60, name="own", tags=["own"])
    @app.every(seconds=60, name="usual")
    @app.task(name="t", tags=["eu"], deadline=Deadline(minutes=1, on_breach=page))
    async def work() -> None: ...

    options = {name: planned.job_options() for name, planned in app._planned.items()}
    assert [options[name]["tags"] for name in ("usual", "own")] == [["eu"], ["own"]]
    assert options["usual"]["deadline"]["on_breach"] == {"task": "page", "tags": ["page"]}


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ("eu", "must be a list of at most 10"), (5, "must be a list"), ({"eu"}, "must be a list"),
        (ONE_TOO_MANY, "at most 10"), ([""], "1 to 50"), (["x" * 51], "1 to 50"), ([5], "text"),
        (["a\x00"], "NUL"), (["\udcff"], "surrogate"), (["a", "b", "a"], "the same tag twice"),
    ],
)  # fmt: skip
def test_bad_tags_are_refused_with_what_to_do(tags: Any, says: str):
    async def work() -> None: ...

    app = App("postgresql://")
    task = app.task(name="good")(work)
    for wrong in (lambda: task.using(tags=tags), lambda: app.task(name="bad", tags=tags)(work)):
        with pytest.raises(BadJob, match=says) as refused:
            wrong()
        assert refused.value.do
    assert len(task.using(tags=["x" * 50, *ONE_TOO_MANY[:9]]).job().tags) == 10


@pytest.mark.parametrize("tags", ["eu", {"a": 1}, ONE_TOO_MANY, [""], ["x" * 51], [5], ["a", "a"]])
async def test_sql_refuses_bad_tags(direct_dsn: str, tags: Any):
    async with await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True) as sql:
        enqueue = "select id from leasework.enqueue(%s)"
        with pytest.raises(psycopg.Error, match="tags must be an array of at most 10"):
            await sql.execute(enqueue, [json.dumps({"task": "t", "tags": tags})])
        callback = {"seconds": 60, "on_breach": {"task": "page", "tags": tags}}
        with pytest.raises(psycopg.Error, match="on_breach whose tags must be an array"):
            await sql.execute(enqueue, [json.dumps({"task": "t", "deadline": callback})])
        cursor = await sql.execute("select count(*) from leasework.jobs")
        assert await cursor.fetchone() == (0,)
        await sql.execute(enqueue, [json.dumps({"task": "t", "tags": None})])
        cursor = await sql.execute("select tags from leasework.jobs")
        assert await cursor.fetchone() == ([],)


# -- what people see ------------------------------------------------------------------------------
async def test_the_command_and_the_dashboard_show_tags_and_filter_by_them(app: App, dsn: str):
    @app.task(name="send")
    async def send() -> None: ...

    tagged = await send.using(tags=["eu", "a & b"]).enqueue()
    other = await send.using(tags=["us"]).enqueue()

    def cli(*arguments: str) -> str:
        environ = {"LEASEWORK_DSN": dsn, "NO_COLOR": "1"}
        done = CliRunner().invoke(root, arguments, prog_name="leasework", env=environ)
        assert done.exit_code == 0, done.output
        return done.output

    listed = json.loads(await asyncio.to_thread(cli, "jobs", "--tag", "eu", "--json"))
    assert [(row["id"], row["tags"]) for row in listed] == [(str(tagged.id), ["eu", "a & b"])]
    assert '["eu", "a & b"]' in await asyncio.to_thread(cli, "jobs", "show", str(tagged.id))
    where = "jobs", "cancel", "--where", 'tag:"a & b"', "--yes"
    assert (
        await asyncio.to_thread(cli, *where)
        == "1 job cancelled, or cancellation requested if running.\n"
    )

    transport = httpx.ASGITransport(dashboard(app, unprotected=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        for query in ("tag:eu", "tag:eu state:cancelled", f"id:{tagged.id}"):
            page = (await http.get("/jobs", params={"q": query})).text
            assert str(tagged.id) in page and str(other.id) not in page, query
            assert ">eu</span>" in page and ">a &amp; b</span>" in page
        assert str(tagged.id) not in (await http.get("/jobs", params={"q": "tag:e"})).text
        page = (await http.get(f"/jobs/{other.id}")).text
        assert ">us</span>" in page and ">eu</span>" not in page
