"""What people do with jobs that have steps: the command, the dashboard's acts, and roles."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from leasework import App, Context
from leasework.cli.root import root
from leasework.errors import BadJob, JobNotFound, WaitTimeout
from leasework.model.filter import parse
from leasework.testing import context, sync_context
from tests.pg.test_durable import ends, is_held
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]


@pytest.fixture
def command(dsn: str, migrated: str) -> Callable[..., Result]:
    def run(*arguments: str, exits: int = 0) -> Result:
        environ = {"LEASEWORK_DSN": dsn, "NO_COLOR": "1"}
        done = CliRunner().invoke(root, arguments, prog_name="leasework", env=environ)
        assert done.exit_code == exits, f"{arguments}: {done.output}\n{done.exception!r}"
        return done

    return run


def define(app: App, calls: list[str]) -> Any:
    def called(name: str) -> str:
        calls.append(name)
        return name

    @app.task
    async def child(seconds: float) -> None: ...

    @app.task(name="trip", max_attempts=1)
    async def trip(ctx: Context) -> Any:
        await ctx.step("room", called, "room")
        await ctx.step("flight", called, "flight")
        await ctx.spawn(child.using(run_in=3600).job(1.0))
        return await ctx.event("approved", timeout=3600)

    return trip


async def test_the_command_shows_steps_and_sends_a_signal(
    app: App, command: Callable[..., Result]
) -> None:
    import asyncio

    async def told(*arguments: str, exits: int = 0) -> str:
        return (await asyncio.to_thread(command, *arguments, exits=exits)).output

    job = await define(app, []).enqueue()
    given = str(job.id)
    async with app.node():
        await is_held(app, job.id, "event")
        steps = json.loads(await told("jobs", "steps", given, "--json"))
        assert [(one["name"], one["kind"], one["open"]) for one in steps] == [
            ("room", "step", False), ("flight", "step", False), ("spawn", "spawn", False),
            ("approved", "event", True),
        ]  # fmt: skip
        assert "waits for the signal of its step 'approved'" in await told("jobs", "show", given)
        assert "child" in await told("jobs", "family", given)
        for name in ("approved", "appro*"):
            assert given in await told("jobs", "--where", f"signal:{name}", "--json")
        for name in ("room", "flight", "approve", "spawn"):
            assert given not in await told("jobs", "--where", f"signal:{name}", "--json")
        kept = await told("jobs", "signal", given, "aproved", "1")
        assert "does not wait for aproved now. It keeps the signal until it does" in kept
        steps = json.loads(await told("jobs", "steps", given, "--json"))
        assert (steps[-1]["name"], steps[-1]["kind"]) == ("aproved", "signal (1 untaken)")
        assert "scheduled or to be retried (1 of them suspended)" in await told("status")
        where = "jobs", "--where", "signal:approved"
        [row] = json.loads(await told(*where, "--json"))
        assert row["scheduled_for"][:4] not in (await told(*where)).split("\n")[1]
        assert "is not JSON" in await told("jobs", "signal", given, "approved", "{", exits=2)
        sent = await told("jobs", "signal", given, "approved", '{"by": "kim"}')
        assert "got the signal approved" in sent
        assert await ends(app, job.id) == {"by": "kim"}
        late = await told("jobs", "signal", given, "approved", exits=1)
        assert "has already finished" in late
        assert given not in await told("jobs", "--where", "signal:approved", "--json")


async def test_a_wait_of_a_key_is_found_by_its_signal(app: App) -> None:
    @app.task(name="trip")
    async def trip(ctx: Context) -> None:
        await ctx.event("approved", key=7)

    job = await trip.enqueue()
    async with app.node():
        await is_held(app, job.id, "event")
        client = await app.client()
        assert [one.id for one in await client.jobs(parse("signal:approved"), 9)] == [job.id]
        assert await client.jobs(parse("-signal:approved"), 9) == []


async def test_a_job_is_run_again_from_a_step(app: App, sql: Sql) -> None:
    calls: list[str] = []
    job = await define(app, calls).enqueue()
    acting = await app.operator("kim", "cli")
    async with app.node():
        await is_held(app, job.id, "event")
        with pytest.raises(BadJob, match="has no step 'boat'"):
            await acting.retry(job.id, "boat")
        assert await acting.retry(job.id, "flight") == "waiting"
        await until_async(lambda: _is(calls == ["room", "flight", "flight"]), what="the step")
        await is_held(app, job.id, "event")
        await app.signal(job.id, "approved", 1)
        assert await ends(app, job.id) == 1
        assert await app.retry(job.id)  # a completed job begins anew
        await until_async(lambda: _is(len(calls) == 5), what="all steps again")
    assert calls == ["room", "flight", "flight", "room", "flight"]


async def _is(value: bool) -> bool:
    return value


async def test_a_family_is_cancelled_with_its_parent(app: App, sql: Sql) -> None:
    job = await define(app, []).enqueue()
    async with app.node():
        await is_held(app, job.id, "event")
    assert await app.cancel(job.id, "withdrawn", family=True)
    assert await sql("select task_name, state, last_error from leasework.job_done order by 1") == [
        (name, "cancelled", "withdrawn") for name in sorted([_child(job), "trip"])
    ]
    assert not await app.cancel(job.id, family=True)


def _child(job: Any) -> str:
    return "tests.pg.test_durable_people.define.<locals>.child"


async def test_a_signal_to_no_job_is_refused(app: App) -> None:
    with pytest.raises(JobNotFound):
        await app.signal(UUID(int=7), "approved")
    with pytest.raises(JobNotFound):
        await app.get_batch(UUID(int=7))


async def test_sql_sends_signals_and_makes_batches(app: App, sql: Sql) -> None:
    [[job]] = await sql('select id from leasework.enqueue(\'{"task": "t"}\')')
    assert await sql("select leasework.send_signal(%s, 'go', '1')", [job]) == [("kept",)]
    assert await sql("select leasework.send_signal(gen_random_uuid(), 'go')") == [(None,)]
    made = await sql(
        "select created from leasework.make_batch(gen_random_uuid(), %s, %s)",
        [json.dumps({"on_done": "report"}), json.dumps([{"task": "t"}] * 3)],
    )
    assert made == [(True,)] * 3
    for wrong, words in (
        ("select leasework.send_signal(%s, '')", "1 to 200 characters"),
        ("select leasework.make_batch(%s, '{\"on_end\": 1}', '[]')", "on_end is not known"),
        ("select leasework.make_batch(%s, '{\"on_done\": {}}', '[]')", "task must be text"),
        ("select leasework.make_batch(%s, '{\"parent\": \"7\"}', '[]')", "parent is not known"),
    ):
        with pytest.raises(Exception, match=words):
            await sql(wrong, [job])


async def test_a_callback_that_cannot_be_enqueued_is_an_event(app: App, sql: Sql) -> None:
    [[job]] = await sql('select id from leasework.enqueue(\'{"task": "t"}\')')
    await sql(
        'update leasework.job set on_success = \'{"task": "u", "queue": 7}\' where id = %s',
        [job],
    )

    @app.task(name="t")
    async def t() -> None: ...

    async with app.node():
        await ends(app, job)
    [[name, error]] = await sql(
        "select fields ->> 'name', fields ->> 'error' from leasework.event "
        "where kind = 'callback_failed'"
    )
    assert name == "on_success of t" and "queue must be text" in error


# -- contexts of tests -----------------------------------------------------------------------------
async def test_a_handler_with_steps_is_tested_without_a_database() -> None:
    async def work(ctx: Context) -> Any:
        first = await ctx.step("first", lambda: 1)
        await ctx.sleep(days=3)
        return first, await ctx.event("approved")

    ctx = context(signals={"approved": {"by": "kim"}})
    assert await work(ctx) == (1, {"by": "kim"})
    assert ctx.steps_done == {"first": 1}
    with pytest.raises(WaitTimeout):
        await work(context())
    plain = sync_context(signals={"go": 2})
    assert plain.step("first", max, 1, 3) == 3 and plain.event("go") == 2
