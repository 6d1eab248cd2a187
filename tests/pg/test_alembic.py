"""The schema through migrations of the user's own: Alembic, and SQLAlchemy's text()."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL, create_engine, text
from sqlalchemy.dialects import postgresql

from leasework import App
from leasework.cli.root import root
from leasework.config import Settings
from leasework.pg.schema import migrate

_ENV = """
from alembic import context
from sqlalchemy import create_engine

with create_engine(context.config.attributes["url"]).connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
"""
_MIGRATION = """
from alembic import op
from leasework import App

revision = "0001"
down_revision = None

def upgrade():
    op.execute("create table public.before (n int)")
    for statement in App().schema_statements():
        op.execute(statement)
    op.execute("create table public.after (n int)")
    {then}

def downgrade():
    op.execute("drop schema leasework cascade")
"""


def url(dsn: str, driver: str = "psycopg") -> URL:
    given = conninfo_to_dict(dsn)
    return URL.create(
        f"postgresql+{driver}", username=str(given["user"]), database=str(given["dbname"]),
        query={"host": str(given["host"]), "port": str(given["port"])},
    )  # fmt: skip


def alembic(folder: Path, dsn: str, then: str = "") -> Config:
    (folder / "versions").mkdir()
    (folder / "env.py").write_text(_ENV)
    (folder / "versions" / "0001.py").write_text(_MIGRATION.format(then=then))
    config = Config(attributes={"url": url(dsn)})
    config.set_main_option("script_location", str(folder))
    return config


def described(dsn: str) -> set[str]:
    """Every function of the schema, as the server defines it."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "select pg_get_functiondef(oid) from pg_proc "
            "where pronamespace = 'leasework'::regnamespace"
        ).fetchall()
    return {row[0] for row in rows}


def test_alembic_makes_the_same_schema_as_apply_and_workers_take_it(
    direct_dsn: str, tmp_path: Path
) -> None:
    command.upgrade(alembic(tmp_path, direct_dsn), "head")
    made = described(direct_dsn)
    assert asyncio.run(_runs_a_job(direct_dsn)) == ["a:b"]
    settings = Settings(dsn=direct_dsn)
    assert asyncio.run(migrate.verify(settings)) == []
    assert asyncio.run(migrate.apply(settings)) == []
    with psycopg.connect(direct_dsn, autocommit=True) as connection:
        connection.execute("drop schema leasework cascade")
    asyncio.run(migrate.apply(settings))
    assert described(direct_dsn) == made and len(made) > 20


async def _runs_a_job(dsn: str) -> list[str]:
    app, ran = App(dsn), []

    @app.task(name="note:it")
    async def note(text: str) -> None:
        ran.append(text)

    async with app.node():
        job = await note.using(unique="a:b").enqueue(text="a:b")
        await job.wait(60)
    return ran


def test_a_migration_that_fails_later_takes_the_schema_back(
    direct_dsn: str, tmp_path: Path
) -> None:
    """A commit among the statements would have ended Alembic's transaction."""
    with pytest.raises(ZeroDivisionError):
        command.upgrade(alembic(tmp_path, direct_dsn, then="1 / 0"), "head")
    with psycopg.connect(direct_dsn) as connection:
        found = connection.execute(
            "select to_regclass('public.before'), to_regclass('leasework.job')"
        ).fetchone()
    assert found == (None, None)


@pytest.mark.parametrize("arguments", [[], ["--no-transaction"]])
def test_sqlalchemys_text_reads_no_parameter_in_the_printed_sql(arguments: list[str]) -> None:
    printed = CliRunner().invoke(
        root, ["schema", "sql", *arguments], env={"LEASEWORK_DSN": "postgresql://x"}
    )
    assert printed.exit_code == 0, printed.output
    read = text(printed.stdout).compile(dialect=postgresql.dialect())
    assert read.params == {} and str(read).replace("%%", "%") == printed.stdout


@pytest.mark.parametrize("arguments", [[], ["--no-transaction"]])
def test_the_printed_sql_makes_the_schema_through_text(
    direct_dsn: str, arguments: list[str]
) -> None:
    printed = CliRunner().invoke(root, ["schema", "sql", *arguments], env={"LEASEWORK_DSN": "x="})
    with create_engine(url(direct_dsn)).connect() as connection:
        connection.execute(text(printed.stdout))
        connection.commit()
    assert asyncio.run(migrate.verify(Settings(dsn=direct_dsn))) == []


@pytest.mark.parametrize("schema", ["leasework", "night_work"])
async def test_each_statement_stands_alone(direct_dsn: str, schema: str) -> None:
    """As drivers want it that prepare what they send, such as asyncpg."""
    import asyncpg

    given: Any = conninfo_to_dict(direct_dsn)
    connection = await asyncpg.connect(
        host=given["host"], port=given["port"], user=given["user"], database=given["dbname"]
    )
    try:
        async with connection.transaction():
            for statement in App(schema=schema).schema_statements():
                await (await connection.prepare(statement)).fetch()
    finally:
        await connection.close()
    assert await migrate.verify(Settings(dsn=direct_dsn, schema=schema)) == []


def test_a_schema_that_is_there_gets_only_what_it_lacks() -> None:
    assert App().schema_statements(after=migrate.SCHEMA_NUMBER) == []
