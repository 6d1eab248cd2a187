"""``leasework.enqueue(jsonb)``: the one entry point for SQL, triggers and other languages; and
another name for the schema."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from leasework import App
from leasework.config import Settings
from leasework.errors import SchemaMissing
from leasework.model.states import State
from leasework.pg.schema import migrate
from tests.support.moments import HALF_A_WEEK_AWAY, WEEK_SECONDS
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]


@pytest.fixture
def task(app: App) -> Any:
    @app.task(name="send")
    async def send(to: str = "", n: int = 0) -> str:
        return f"{to}{n}"

    return send


async def enqueue(sql: Sql, request: Any) -> list[Any]:
    return await sql("select * from leasework.enqueue(%s::jsonb)", [json.dumps(request)])


async def test_plain_sql_enqueues_one_job(app: App, task: Any, sql: Sql) -> None:
    async with app.node():
        [(job, created)] = await enqueue(sql, {"task": "send", "payload": {"to": "a", "n": 1}})
        assert created
        await until_async(lambda: is_in(app, job, State.COMPLETED))
        assert (await app.get(job)).result == "a1"


async def is_in(app: App, job: Any, state: State) -> bool:
    return (await app.get(job)).state is state


async def test_plain_sql_has_every_option(app: App, sql: Sql) -> None:
    rows = await enqueue(
        sql,
        [
            {"task": "a", "queue": "q", "priority": -3, "max_attempts": 2, "timeout": 1.5},
            {"task": "b", "run_in": 60, "unique": "k", "unique_for": 3600},
            {"task": "b", "unique": "k", "on_conflict": "return"},
            {"task": "c", "run_at": "2030-01-01T00:00:00+09:00", "history": False},
            {"task": "d", "id": "01890000-0000-7000-8000-000000000000", "requeue_after": 9},
        ],
    )
    assert [created for _, created in rows] == [True, True, False, True, True]
    assert rows[2][0] == rows[1][0] and str(rows[4][0]).startswith("01890000")
    a, b, _, c, d = [await app.get(job) for job, _ in rows]
    assert (a.queue, a.priority, a.max_attempts, a.payload) == ("q", -3, 2, {})
    assert b.state is State.SCHEDULED and c.scheduled_for.isoformat().startswith("2029-12-31T15")
    assert d.state is State.AVAILABLE


async def test_a_trigger_enqueues_in_the_transaction_that_fired_it(
    app: App, task: Any, sql: Sql, migrated: str
) -> None:
    await sql("create table customer (name text)")
    await sql(
        """create function greet() returns trigger language plpgsql as $$ begin
            perform leasework.enqueue(jsonb_build_object(
                'task', 'send', 'payload', jsonb_build_object('to', new.name)));
            return new;
        end $$"""
    )
    await sql("create trigger greet after insert on customer for each row execute function greet()")
    with psycopg.connect(migrated) as connection:
        connection.execute("insert into customer values ('rolled back')")
        connection.rollback()
        connection.execute("insert into customer values ('Kim'), ('Lee')")
    async with app.node():
        jobs = await app.jobs()
        assert sorted(job.payload["to"] for job in jobs) == ["Kim", "Lee"]
        for job in jobs:
            await until_async(lambda job=job: is_in(app, job.id, State.COMPLETED))


REFUSED = [
    ({}, "task must be text"),
    ({"task": ""}, "task must be text"),
    ({"task": 5}, "task must be text"),
    ({"task": "x" * 201}, "task must be text of 1 to 200"),
    ({"task": "t", "quue": "a"}, "quue is not known"),
    ({"task": "t", "payload": [1]}, "payload must be an object, got array"),
    ({"task": "t", "payload": None}, "payload must be an object, got null"),
    ({"task": "t", "queue": ""}, "1 to 200"),
    ({"task": "t", "queue": 5}, "queue must be text"),
    ({"task": "t", "unique": ["a"]}, "unique must be text"),
    ({"task": "t", "unique": "k", "on_conflict": "ignore"}, "return, raise or replace"),
    ({"task": "t", "max_attempts": 0}, "max_attempts"),
    ({"task": "t", "max_attempts": 40000}, "max_attempts"),
    ({"task": "t", "timeout": 0}, "timeout"),
    ({"task": "t", "timeout": "soon"}, "timeout must be a number"),
    ({"task": "t", "run_in": -1}, "run_in"),
    ({"task": "t", "run_in": 1e300}, "run_in"),
    ({"task": "t", "requeue_after": 0}, "requeue_after"),
    ({"task": "t", "unique": "k", "unique_for": -1}, "unique_for"),
    ({"task": "t", "unique_for": 5}, "unique_for only with unique"),
    ({"task": "t", "priority": 1.5}, "priority"),
    ({"task": "t", "priority": 100000}, "priority"),
    ({"task": "t", "run_at": "tomorrow at noon"}, "run_at"),
    ({"task": "t", "run_at": "infinity"}, "run_at"),
    ({"task": "t", "run_at": "2030-01-01T00:00Z", "run_in": 5}, "run_at or run_in"),
    ({"task": "t", "history": "maybe"}, "history"),
    ({"task": "t", "id": "7"}, "id"),
    ({"task": "t", "payload": {"a": "x" * 1_100_000}}, "over the limit of 1048576"),
    ("send", "must be an object, got string"),
    ([{"task": "t"}, None], "must be an object, got null"),
    (None, "must be an object, got null"),
]


async def test_a_bad_request_is_refused_whole_and_says_why(sql: Sql) -> None:
    for request, why in REFUSED:
        both = [{"task": "good"}, *(request if isinstance(request, list) else [request])]
        with pytest.raises(psycopg.Error) as caught:
            await enqueue(sql, both)
        message = caught.value.diag.message_primary or ""
        assert message.startswith("leasework.enqueue: ") and why in message, (request, message)
    assert await sql("select * from leasework.job") == []


async def test_an_option_that_is_null_is_as_good_as_none(app: App, sql: Sql) -> None:
    options = ("queue", "priority", "run_at", "run_in", "unique", "unique_for", "history", "id")
    [(job, created)] = await enqueue(sql, {"task": "t", **dict.fromkeys(options)})
    assert created and (await app.get(job)).queue == "default"


async def test_nothing_at_all_enqueues_nothing(sql: Sql) -> None:
    assert await enqueue(sql, []) == []
    with pytest.raises(psycopg.Error, match=r"^leasework\.enqueue: "):
        await sql("select * from leasework.enqueue(null)")


async def test_another_name_for_the_schema_even_a_word_of_sql(dsn: str, direct_dsn: str) -> None:
    settings = Settings(dsn=direct_dsn, schema="user")
    await migrate.apply(settings)
    assert await migrate.verify(settings) == []
    app, wrong = App(dsn, schema="user"), App(dsn)

    @app.every(seconds=WEEK_SECONDS, anchor=HALF_A_WEEK_AWAY, name="weekly")
    @app.task(name="send")
    async def send() -> int:
        return 1

    async with app.node(), app.advisory_lock("one"):
        if dsn == direct_dsn:
            await until_async(lambda: listens(direct_dsn))
        async with await psycopg.AsyncConnection.connect(direct_dsn) as user:
            job = await send.using(on=user).enqueue()
            await user.execute("""select "user".enqueue('{"task": "send"}')""")
        assert await job.wait(60) == 1
        await until_async(lambda: both_done(app))
        with pytest.raises(SchemaMissing):
            await wrong.jobs()
    await app.close()
    await wrong.close()
    with psycopg.connect(direct_dsn) as connection:
        rows = connection.execute("select nspname from pg_namespace where nspname ~ 'leasework'")
        assert rows.fetchall() == []
        names = connection.execute('select holder is null, name from "user".leaders').fetchall()
        assert names == [(True, "default")]


async def listens(dsn: str) -> bool:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute("select info -> 'listening' from \"user\".node")
        return await cursor.fetchall() == [(True,)]


async def both_done(app: App) -> bool:
    return len(await app.jobs(state="completed")) == 2


@pytest.mark.parametrize(
    "name", ["", "Night", "a-b", "public; drop", "pg_jobs", "x" * 41, "1st", "ü"]
)
def test_a_schema_has_a_plain_name(name: str) -> None:
    from leasework.errors import ConfigError

    if name:
        with pytest.raises(ConfigError, match="plain lower-case SQL name"):
            App("postgresql://", schema=name)
