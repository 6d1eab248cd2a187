"""Connections of the user's in other encodings, and with other styles of times and numbers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from leasework import App, Context, Deadline
from leasework.config import Settings
from leasework.pg.connection.session import Session
from tests.pg.drivers import ALL, done

Sql = Callable[..., Awaitable[list[Any]]]
TEXT = "Straße 서울 🐘"
ODD = (
    "-c datestyle=German,YMD -c intervalstyle=sql_standard -c standard_conforming_strings=off "
    "-c backslash_quote=off -c timezone=Asia/Kathmandu -c bytea_output=escape "
    "-c extra_float_digits=-9 -c client_encoding=SQL_ASCII"
)
STYLES = {
    "client_encoding": "UTF8",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "standard_conforming_strings": "on",
    "extra_float_digits": "1",
    "timezone": "UTC",
}


@pytest.mark.parametrize("driver", list(ALL))
async def test_on_any_connection_any_text_is_enqueued(
    app: App, migrated: str, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    @app.task(name="echo")
    async def echo(text: str) -> str:
        return text

    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    async with ALL[driver](migrated) as way:
        first = await echo.using(on=way.connection).enqueue(text=TEXT)
        await echo.using(unique=TEXT, on=way.connection).enqueue(text=TEXT)
        await done(way.commit())
    assert (await app.get(first.id)).payload == {"text": TEXT}
    assert len(await app.jobs()) == 2


@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_KR", "SQL_ASCII", "UTF8"])
async def test_what_else_is_done_in_a_users_transaction_takes_any_text(
    app: App, migrated: str, encoding: str
) -> None:
    """Completion with a result, a lock's fence, a deadline by its name."""

    @app.task(name="told")
    async def told(breach: dict[str, Any]) -> None: ...

    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(migrated, client_encoding=encoding)

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        async with await connect() as user:
            await ctx.complete(on=user, result={TEXT: TEXT})

    async with app.node():
        job = await work.enqueue()
        assert await job.wait(60) == {TEXT: TEXT}
        async with app.lock(TEXT) as lock, await connect() as user:
            await lock.verify(user)
        async with await connect() as user:
            due = timedelta(hours=1)
            armed = await app.deadline(TEXT, due=due, on_breach="told", on=user)
            assert (await app.deadline(TEXT, on=user)).id == armed.id
            await armed.met(on=user)


async def test_leaseworks_own_session_sets_the_styles_itself(migrated: str) -> None:
    session = await Session.open(Settings(dsn=make_conninfo(migrated, options=ODD)), "work")
    shown = {}
    for setting in STYLES:
        cursor = await session.connection.execute(f"show {setting}".encode())
        [[shown[setting]]] = await cursor.fetchall()
    await session.close()
    assert shown == STYLES


async def test_odd_styles_of_the_users_session_change_nothing(app: App, migrated: str) -> None:
    @app.task(name="late")
    async def late(breach: dict[str, Any]) -> None: ...

    @app.task(name="echo", deadline=Deadline(hours=1, on_breach="late"))
    async def echo(text: str) -> str:
        return text

    odd = make_conninfo(migrated, options=ODD)
    text = TEXT + " \\ ' \\' : {}"
    async with await psycopg.AsyncConnection.connect(odd) as user:
        job = await echo.using(on=user).enqueue(text=text)
        keyed = echo.using(unique="a:b\\c", run_in=3600)
        first = await keyed.using(on=user).enqueue(text)
    assert (await keyed.enqueue(text)).id == first.id  # the key is named as everywhere
    async with app.node():
        assert await job.wait(60) == text


async def test_the_schema_is_the_same_whatever_the_sessions_that_make_it_are_set_to(
    direct_dsn: str,
) -> None:
    odd = App(make_conninfo(direct_dsn, options=ODD))
    await odd.apply_schema()
    await odd.close()
    with psycopg.connect(direct_dsn) as plain, psycopg.connect(direct_dsn) as other:
        other.execute("set standard_conforming_strings = off")
        named = "select leasework.key_of(%s, 'c')"
        assert plain.execute(named, ["a:b\\"]).fetchone() == ("a\\:b\\\\:c",)
        assert other.execute(named, ["a:b\\"]).fetchone() == ("a\\:b\\\\:c",)


async def test_the_script_makes_the_same_schema_where_backslashes_are_escapes(
    direct_dsn: str, app: App, sql: Sql
) -> None:
    """``leasework schema sql`` in a session of the user's."""
    script = App(direct_dsn, schema="second").schema_sql()
    with psycopg.connect(direct_dsn, autocommit=True, options=ODD) as user:
        user.execute(script.encode())
    [(named,)] = await sql("select second.key_of(%s, 'c')", ["a:b\\"])
    assert named == "a\\:b\\\\:c"
    assert await sql("select leasework.key_of(%s, 'c')", ["a:b\\"]) == [(named,)]
