"""Lists of jobs, which are found in steps of a limited number of rows."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from leasework import App
from leasework.errors import BadFilter, Unavailable
from leasework.model.filter import JobFilter
from leasework.model.job import JobOptions, JobRequest
from leasework.tuning import Tuning
from tests.support.wait import until_async


@pytest.fixture
def app(migrated: str, monkeypatch: pytest.MonkeyPatch) -> App:
    for name in ("page_rows", "page_bad_rows", "step_rows"):
        monkeypatch.setattr(Tuning, name, 2)
    return App(migrated, name="shop")


async def test_jobs_are_found_behind_many_others(app: App, sql: Any) -> None:
    @app.task(name="rare", tags=["vip"])
    async def rare() -> None: ...

    @app.task(name="usual")
    async def usual() -> None: ...

    old = await rare.using(queue="mail").enqueue()
    await app.enqueue_many([usual.job() for _ in range(7)])
    for wanted in ({"task": "rare"}, {"queue": "mail"}, {"tag": "vip"}):
        assert [job.id for job in await app.jobs(**wanted)] == [old.id], wanted
    assert len(await app.jobs()) == 8 and len(await app.jobs(limit=5)) == 5
    await sql("update leasework.job set ready = false, held_because = 'scheduled'")
    await sql("update leasework.job set held_because = 'retryable' where id = %s", [old.id])
    assert [job.id for job in await app.jobs(state="retryable")] == [old.id]
    assert [job.id for job in await app.jobs(state="scheduled", task="rare")] == []
    assert len(await app.jobs(state="scheduled")) == 7
    await app.close()


async def test_a_list_that_takes_too_long_is_refused(app: App) -> None:
    await app.enqueue_many([JobRequest(JobOptions("t"), "{}") for _ in range(7)])
    (await app.reports())._seconds = 0.0
    assert len(await app.jobs()) == 7, "one step is enough"
    assert len(await app.jobs(task="t", limit=2)) == 2, "the first step found enough"
    with pytest.raises(Unavailable, match="the list was not complete after 0 s"):
        await app.jobs(task="rare")
    await app.close()


async def test_a_name_that_too_many_nodes_have_is_refused(app: App, sql: Any) -> None:
    dead = (
        "insert into leasework.death (node, worker_id, app, release, how)"
        " select gen_random_uuid(), 'web-' || n || ':1:abcdef', 'shop', 'r', 'left'"
        " from generate_series(1, {}) n"
    )
    await sql(dead.format(1000))
    operator = await app.operator("ann", "test")
    assert (await operator.reports.job_page(JobFilter(node="web-"), None, 10)).rows == []
    await sql(dead.format(1))
    with pytest.raises(BadFilter, match="more than 1,000 nodes"):
        await operator.reports.job_page(JobFilter(node="web-"), None, 10)
    assert (await operator.reports.job_page(JobFilter(node="web-7:"), None, 10)).rows == []
    await app.close()


async def test_running_jobs_behind_too_many_others_are_not_left_out_silently(
    app: App, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.enqueue_many([JobRequest(JobOptions("t"), "{}") for _ in range(5)])
    await sql(
        "insert into leasework.claimed_to (node, queue, level, seat)"
        " values (gen_random_uuid(), 'default', 1, 1000)"
    )
    assert await app.jobs(state="running") == []
    monkeypatch.setattr(Tuning, "running_rows", 5)
    with pytest.raises(BadFilter, match="stand before the running ones"):
        await app.jobs(state="running")
    await app.close()


async def test_jobs_that_wait_for_their_time_are_listed_by_that_time(app: App) -> None:
    @app.task(name="later")
    async def later() -> None: ...

    hours = [5, 1, 3, 2, 4]
    made = {h: await later.using(run_in=timedelta(hours=h)).enqueue() for h in hours}
    found = [job.id for job in await app.jobs(state="scheduled")]
    assert found == [made[h].id for h in sorted(hours)]
    assert [job.id for job in await app.jobs()] == [made[h].id for h in reversed(hours)]
    await app.close()


async def test_running_jobs_are_listed_oldest_first(app: App) -> None:
    started = []

    @app.task(name="long")
    async def long() -> None:
        started.append(1)
        await never.wait()

    never = asyncio.Event()
    jobs = await app.enqueue_many([long.job() for _ in range(5)])
    async with app.node(queues={"default": 3}):
        await until_async(lambda: len(started) == 3, 30)
        found = [job.id for job in await app.jobs(state="running")]
        assert found == [job.id for job in jobs[:3]]
        never.set()
    await app.close()
