"""Deadlines in a running application: armed, met, breached, told; and seen by people."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from leasework import App, Context, Deadline, Discard
from leasework.errors import BadDeadline, DeadlineNotFound
from leasework.model.deadline import DueDeadline
from leasework.model.states import State
from tests.pg import deadline_handlers
from tests.support.wait import until_async


def page_task(app: App) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []

    @app.task(name="page", queue="pages")
    async def page(breach: dict[str, Any]) -> None:
        told.append(breach)

    return told


def cli(dsn: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leasework", *words, "--dsn", dsn]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


async def test_a_node_tells_of_a_breach_once_while_the_handler_goes_on(app: App, sql: Any):
    told = page_task(app)
    seen: list[Any] = []
    go = asyncio.Event()

    @app.task(name="slow")
    async def slow(ctx: Context) -> None:
        seen.append(ctx.deadline)
        await go.wait()

    promise = Deadline(seconds=0.5, since="started", on_breach="page", name="warn")
    async with app.node(queues={"default": 2, "pages": 2}):
        job = await app.enqueue(slow.using(deadline=promise).job())
        await until_async(lambda: asyncio.sleep(0, told), 30, "the page")
        go.set()
        await job.wait(30)
    [facts] = told
    assert (facts["deadline"], facts["name"], facts["state"]) == (str(job.id), "warn", "running")
    [due] = seen
    assert isinstance(due, DueDeadline) and (due.id, due.state) == (job.id, "armed")
    rows = await sql("select state, job_state from leasework.deadlines")
    assert rows == [("breached", "running")]
    events = await (await app.inspect()).events("deadline_breached")
    assert [event.fields["deadline"] for event in events] == [str(job.id)]


async def test_a_claim_that_was_taken_away_before_its_start_does_not_start(app: App, sql: Any):
    page_task(app)
    ran: list[int] = []
    taken: list[int] = []

    @app.task(deadline=Deadline(hours=1, on_breach="page"))
    async def counted(ctx: Context) -> None:
        ran.append(ctx.token)

    @app.task
    async def first() -> None:
        claimed = (
            "select id, claim_token from leasework.job where task_name = %s and node is not null"
        )
        for job, token in await sql(claimed, [counted.name]):
            while await (await app.store()).requeue(job, token) is State.RUNNING:
                pass
            taken.append(token)

    @app.task
    async def quick() -> None: ...  # a node claims ahead where jobs are short

    rounds = 0
    async with app.node(queues={"default": 1}):
        while not taken:  # in most rounds, the last job is claimed when the first one runs
            rounds += 1
            await app.enqueue_many([*[quick.job()] * 100, first.job()])
            await (await counted.enqueue()).wait(60)
    assert len(ran) == rounds and not set(ran) & set(taken), (ran, taken, rounds)


async def test_a_job_without_a_deadline_has_none_in_its_context(app: App):
    seen: list[Any] = []

    @app.task(name="plain")
    async def plain(ctx: Context) -> None:
        seen.append(ctx.deadline)

    async with app.node():
        await (await plain.enqueue()).wait(30)
    assert seen == [None]


async def test_a_handler_in_a_child_process_knows_its_deadline(app: App):
    page_task(app)
    never = Deadline(hours=1, on_breach="page")
    told = app.task(name="told", executor="process", deadline=never)(deadline_handlers.its_deadline)
    async with app.node():
        job = await told.enqueue()
        assert await job.wait(60) == [str(job.id), "armed"]


async def test_a_schedules_tick_that_fails_is_told_with_its_moment(app: App):
    told = page_task(app)

    @app.task(name="failing")
    async def failing() -> Discard:
        return Discard("it is broken")

    promise = Deadline(seconds=0.3, since="tick", on_breach="page")
    app.every(seconds=2, deadline=promise)(failing)
    async with app.node(queues={"default": 2, "pages": 2}):

        def of_a_failure() -> list[dict[str, Any]]:  # an earlier one may tell of a job that is late
            return [facts for facts in told if facts["state"] == "discarded"]

        [facts, *_] = await until_async(of_a_failure, 30, "the page")
    assert facts["schedule"] == "failing"
    assert facts["tick"] and facts["since"] == "tick"


async def test_one_that_stands_alone_in_a_transaction_of_the_users(
    app: App, migrated: str, sql: Any
):
    page_task(app)
    async with await psycopg.AsyncConnection.connect(migrated) as user:
        promise = await app.deadline("books", due=timedelta(hours=1), on_breach="page", on=user)
        assert promise.created
        assert (await app.deadline("books", on=user)).id == promise.id
        with pytest.raises(DeadlineNotFound, match="books"):
            await app.deadline("books")
        await user.rollback()
        assert await sql("select * from leasework.deadlines") == []
        with pytest.raises(BadDeadline, match="past"):
            await app.deadline("books", due=datetime(2001, 1, 1, tzinfo=UTC), on_breach="page")
        promise = await app.deadline("books", due=3600, on_breach="page")
        again = await app.deadline("books", due=9999, on_breach="page")
        assert (again.id, again.created, promise.created) == (promise.id, False, True)
        assert await promise.met(on=user)
        await user.rollback()
        found = await app.deadline("books")
        assert found.id == promise.id and await found.met()
        assert await promise.met() and not await promise.cancel()
    with pytest.raises(DeadlineNotFound, match="papers"):
        await app.deadline("papers")
    moment = datetime.now(UTC) + timedelta(hours=2)
    fixed = await app.deadline("books", due=moment, on_breach="page")
    assert await fixed.cancel() and not await fixed.met()
    assert (await app.deadline("books", due=moment, on_breach="page")).id == fixed.id


async def test_two_who_arm_a_name_at_once_get_the_same_deadline(migrated: str, sql: Any):
    arm = b"""select id, created from leasework.deadline_arm(
        gen_random_uuid(), 'books', '{"seconds": 60, "on_breach": "page"}')"""
    async with (
        await psycopg.AsyncConnection.connect(migrated) as one,
        await psycopg.AsyncConnection.connect(migrated, autocommit=True) as two,
    ):
        [(mine, created)] = await (await one.execute(arm)).fetchall()
        assert created
        other = asyncio.create_task(two.execute(arm))
        waits = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
        await until_async(lambda: sql(waits, [two.info.backend_pid]), 10, "the other to wait")
        await one.commit()
        assert await (await other).fetchall() == [(mine, False)]
    assert await sql("select id from leasework.deadline") == [(mine,)]


def test_the_same_without_a_loop(dsn: str, migrated: str):
    app = App(dsn)
    page_task(app)
    promise = app.sync.deadline("books", due=3600, on_breach="page")
    again = app.sync.deadline("books")
    assert (promise.created, again.created, again.id) == (True, False, promise.id)
    with psycopg.connect(migrated) as user:
        other = app.sync.deadline("papers", due=3600, on_breach="page", on=user)
        found = app.sync.deadline("papers", on=user)
        assert (found.id, found.created) == (other.id, False), "as the transaction sees it"
        assert other.cancel(on=user) and not found.met(on=user)
        user.rollback()
        with pytest.raises(DeadlineNotFound, match="papers"):
            app.sync.deadline("papers", on=user)
    with pytest.raises(DeadlineNotFound):
        app.sync.deadline("papers")
    assert promise.met() and not again.cancel()


async def test_what_was_met_after_its_time_and_before_a_sweep_is_an_event(app: App, sql: Any):
    page_task(app)
    promise = await app.deadline("books", due=0.05, on_breach="page")
    await until_async(
        lambda: sql("select 1 from leasework.deadlines where due_at < now()"), 30, "its time"
    )
    assert await promise.met()
    [event] = await (await app.inspect()).events("deadline_late")
    assert event.fields["deadline"] == str(promise.id) and event.fields["late"] > 0
    assert (await (await app.store()).sweep(10, None)).breaches == ()


async def test_enqueue_in_sql_takes_a_deadline_and_says_what_is_wrong(
    app: App, sql: Callable[..., Any]
):
    call = "select id from leasework.enqueue(%s::jsonb)"
    good = {"task": "t", "deadline": {"seconds": 60, "on_breach": "page"}}
    [(job,)] = await sql(call, [json.dumps(good)])
    assert await sql("select job_id, on_breach from leasework.deadlines") == [(job, "page")]
    for wrong in (
        7, [], [1], {}, {"on_breach": ""}, {"on_breach": {"queue": "x"}}, {"on_breach": "p"},
        {"on_breach": "p", "seconds": -1}, {"on_breach": "p", "seconds": "1"},
        {"on_breach": "p", "seconds": 1, "since": "birth"}, {"on_breach": "p", "since": "fixed"},
        {"on_breach": "p", "since": "fixed", "at": "soon"}, {"on_breach": "p", "since": "average"},
        {"on_breach": "p", "seconds": 1, "until": "x"}, {"on_breach": "p", "seconds": 1, "x": 1},
        {"on_breach": "p", "since": "fixed", "at": "2001-01-01T00:00:00Z"},
        {"on_breach": "p", "seconds": 1, "name": ""}, [{"on_breach": "p", "seconds": 1}],
        {"on_breach": "p", "seconds": 1, "since": "tick"},
    ):  # fmt: skip
        with pytest.raises(psycopg.Error) as raised:
            await sql(call, [json.dumps({"task": "t", "deadline": wrong})])
        assert raised.value.sqlstate == "LH002", wrong
    assert len(await sql("select 1 from leasework.job")) == 1


async def test_people_see_them_and_status_names_a_breach_that_nobody_handles(
    app: App, direct_dsn: str, sql: Any
):
    page_task(app)
    promise = await app.deadline("books", due=0.001, on_breach="page")
    await app.deadline("papers", due=3600, on_breach="page")
    store = await app.store()
    later = datetime.now(UTC) + timedelta(seconds=5)
    assert [b.id for b in (await store.sweep(10, later)).breaches] == [promise.id]
    rows, shown, unhandled, status = await asyncio.gather(
        *[
            asyncio.to_thread(cli, direct_dsn, *words)
            for words in (
                ("deadlines", "--json", "--state", "breached"),
                ("deadlines",),
                ("deadlines", "--unhandled"),
                ("status", "--json"),
            )
        ]
    )
    [row] = json.loads(rows.stdout)
    assert (row["name"], row["on_breach"], row["id"]) == ("books", "page", str(promise.id))
    lines = shown.stdout.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["papers", "books"]
    assert shown.returncode == 0 and unhandled.returncode == 1 and "unknown" in unhandled.stdout
    every = [
        p for cause in json.loads(status.stdout)["problems"] for p in (cause, *cause["symptoms"])
    ]
    found = [p for p in every if p["kind"] == "breach_unhandled"]
    assert (
        len(found) == 1 and "'page'" in found[0]["sentence"] and "'books'" in found[0]["sentence"]
    )
    async with app.node(queues={"pages": 1}):
        await until_async(
            lambda: sql(
                "select 1 from leasework.jobs where task_name='page' and state='completed'"
            ),
            30,
            "the callback",
        )
        problems = await (await app.inspect()).problems()
        assert "breach_unhandled" not in [p.kind for p in problems]
