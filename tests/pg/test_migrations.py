"""Applying, printing and verifying the schema; and programs that meet another one than theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from leasework import App
from leasework.cli.root import root
from leasework.config import Settings
from leasework.errors import PermissionDenied, SchemaMissing, SchemaTooNew, SchemaTooOld
from leasework.pg.schema import migrate

Sql = Callable[..., Awaitable[list[Any]]]


async def test_the_schema_is_applied_once(direct_dsn: str) -> None:
    settings = Settings(dsn=direct_dsn)
    assert await migrate.applied(settings) == {}
    told: list[str] = []
    first = await migrate.apply(settings, told.append)
    assert first == list(migrate.MIGRATIONS) and told == ["applying 0001_initial"]
    assert await migrate.apply(settings) == []
    assert await migrate.applied(settings) == {m.number: m.name for m in migrate.MIGRATIONS}


async def test_eight_processes_that_start_at_once_apply_it_once(direct_dsn: str) -> None:
    settings = Settings(dsn=direct_dsn)
    answers = await asyncio.gather(*[migrate.apply(settings) for _ in range(8)])
    assert sorted(len(done) for done in answers) == [0] * 7 + [len(migrate.MIGRATIONS)]
    assert await migrate.verify(settings) == []


async def test_a_role_that_may_create_nothing_finds_it_applied(
    migrated: str, sql: Sql, direct_dsn: str
) -> None:
    role = f"r{direct_dsn.split('dbname=')[1].split()[0]}"
    await sql(f"create role {role} login")
    try:
        limited = Settings(dsn=f"{direct_dsn} user={role}")
        with pytest.raises(PermissionDenied, match="use the login that owns the schema"):
            await migrate.apply(limited)
        await sql("alter schema leasework rename to aside")
        with pytest.raises(PermissionDenied, match=r"grant create on database . to the login"):
            await migrate.apply(limited)
        await sql("alter schema aside rename to leasework")
        await sql(f"grant usage on schema leasework to {role}")
        await sql(f"grant select on leasework.migration to {role}")
        assert await migrate.apply(limited) == []
    finally:
        await sql(f"drop owned by {role}")
        await sql(f"drop role {role}")


async def test_a_migration_that_fails_leaves_nothing_behind(
    direct_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = migrate.Migration(2, "broken", 2, "create table leasework.half (); select 1/0;")
    monkeypatch.setattr(migrate, "MIGRATIONS", (*migrate.MIGRATIONS, broken))
    settings = Settings(dsn=direct_dsn)
    with pytest.raises(Exception, match="division by zero"):
        await migrate.apply(settings)
    assert await migrate.applied(settings) == {}


@pytest.mark.parametrize("schema", ["leasework", "j", "user"])
async def test_the_printed_sql_makes_the_same_schema(direct_dsn: str, schema: str) -> None:
    with psycopg.connect(direct_dsn, autocommit=True) as connection:
        connection.execute(migrate.script(schema).encode())
    settings = Settings(dsn=direct_dsn, schema=schema)
    assert await migrate.verify(settings) == []
    assert await migrate.apply(settings) == []


DRIFTS = {
    "drop index leasework.job_ready": "missing: index CREATE INDEX job_ready",
    "alter table leasework.job add note text": "unexpected: column job.note text",
    "alter table leasework.job alter queue drop not null": "unexpected: column job.queue text",
    "drop view leasework.leaders": "missing: view leaders",
    "drop trigger bury on leasework.node": "missing: trigger",
    "alter table leasework.job_key drop constraint job_key_pkey": "missing: index CREATE UNIQUE",
    "create table leasework.mine (n int)": "unexpected: column mine.n integer",
    """create or replace function leasework.timeline() returns bigint language sql
       as 'select 1::bigint'""": "unexpected: function CREATE OR REPLACE FUNCTION",
}


async def test_verify_names_what_differs(migrated: str, sql: Sql) -> None:
    settings = Settings(dsn=migrated)
    assert await migrate.verify(settings) == []
    for change in DRIFTS:
        await sql(change)
    found = await migrate.verify(settings)
    for change, line in DRIFTS.items():
        assert any(text.startswith(line) for text in found), (change, found)
    assert await sql("select 1 from pg_namespace where nspname ~ 'verify'") == []


async def test_days_of_history_are_no_drift(migrated: str, sql: Sql) -> None:
    await sql("select leasework.partitions(now() + interval '30 days', 9, 36500)")
    assert await migrate.verify(Settings(dsn=migrated)) == []


async def refusal(app: App) -> Exception:
    @app.task(name="t")
    async def work() -> None: ...

    caught: list[Exception] = []
    for act in (app.jobs, work.enqueue, lambda: app.enqueue_many([work.job()] * 50)):
        try:
            await act()
        except Exception as error:
            caught.append(error)
    assert len({type(error) for error in caught}) == 1 and len(caught) == 3, caught
    return caught[0]


async def test_without_a_schema_it_says_how_to_make_one(dsn: str) -> None:
    app = App(dsn)
    error = await refusal(app)
    assert isinstance(error, SchemaMissing) and "leasework schema apply" in str(error)
    with pytest.raises(SchemaMissing):
        async with app.node():
            raise AssertionError("a node without a schema")
    with pytest.raises(SchemaMissing):
        await migrate.verify(Settings(dsn=dsn))
    await app.close()


def says_it_is_a_copy(text: str) -> bool:
    said = " ".join(text.split())
    return "tables, but no record of leasework's migrations" in said and "--schema-only" in said


async def test_a_copy_without_rows_is_not_sent_back_to_schema_apply(
    app: App, sql: Sql, direct_dsn: str
) -> None:
    """As `pg_dump --schema-only` makes it."""
    tables = await sql(
        "select format('leasework.%I', relname) from pg_class "
        "where relnamespace = 'leasework'::regnamespace and relkind in ('r', 'p')"
    )
    await sql(f"truncate {', '.join(table for (table,) in tables)}")
    error = await refusal(app)
    assert isinstance(error, SchemaMissing) and says_it_is_a_copy(str(error))
    for act in (migrate.apply, migrate.applied, migrate.verify):
        with pytest.raises(SchemaMissing) as raised:
            await act(Settings(dsn=direct_dsn))
        assert says_it_is_a_copy(str(raised.value))
    with psycopg.connect(direct_dsn) as connection, pytest.raises(SchemaMissing) as raised:
        migrate.apply_on(connection.cursor(), "leasework")
    assert says_it_is_a_copy(str(raised.value))
    for command in ("status", "doctor"):
        environ = {"LEASEWORK_DSN": direct_dsn, "NO_COLOR": "1", "COLUMNS": "500"}
        done = await asyncio.to_thread(CliRunner().invoke, root, [command], env=environ)
        assert done.exit_code == 1 and says_it_is_a_copy(done.output), done.output
    await sql("drop schema leasework cascade")
    assert await migrate.apply(Settings(dsn=direct_dsn))


async def test_tables_of_the_application_with_our_names_are_told(direct_dsn: str, sql: Sql) -> None:
    await sql("create table public.job (id integer)")
    with pytest.raises(SchemaMissing, match="If the tables are yours, give leasework another"):
        await migrate.apply(Settings(dsn=direct_dsn, schema="public"))
    assert await migrate.applied(Settings(dsn=direct_dsn, schema="public")) == {}


async def test_a_schema_that_is_too_old_is_refused(app: App, sql: Sql) -> None:
    await sql("update leasework.migration set number = -1")
    error = await refusal(app)
    assert isinstance(error, SchemaTooOld) and "leasework schema apply" in str(error)
    with pytest.raises(SchemaTooOld):
        async with app.node():
            raise AssertionError("a node on an old schema")


async def test_a_schema_that_is_too_new_is_refused(app: App, sql: Sql, migrated: str) -> None:
    await sql("insert into leasework.migration values (99, 'future', 99)")
    error = await refusal(app)
    assert isinstance(error, SchemaTooNew) and "Upgrade leasework" in str(error)
    for act in (migrate.apply, migrate.verify):
        with pytest.raises(SchemaTooNew):
            await act(Settings(dsn=migrated))


async def test_a_newer_schema_that_an_older_program_can_use_is_used(app: App, sql: Sql) -> None:
    """Blue goes on while green has migrated already."""
    await sql("insert into leasework.migration values (99, 'compatible', 1)")

    @app.task(name="t")
    async def work() -> int:
        return 1

    async with app.node():
        assert await (await work.enqueue()).wait(60) == 1
