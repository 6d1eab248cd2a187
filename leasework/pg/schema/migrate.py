"""Numbered SQL migrations: apply, print, verify. Any number of processes may start at once."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import psycopg
from msgspec import Struct

from leasework import errors
from leasework.config import Settings
from leasework.pg.connection.session import Session
from leasework.pg.sql import for_schema, in_sql
from leasework.tuning import Tuning

LOCK_KEY = 0x6C65617365776F72
"""'leasewor' in ASCII. Two schemas wait for each other, which does no harm."""
# to_regclass would not do: it locks no relation, so a session that has waited for another's commit
# may still have cached that there is no such table.
_HAS_TABLE = """
select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relname = 'migration'
"""


_MAY_APPLY = (
    "To create the schema: grant create on database … to the login. To change it: use the login "
    "that owns the schema, or a member of that role"
)
_MAY_VERIFY = (
    "Add the login to the group of observers, who read the schema: leasework schema sql --roles. "
    "To compare, it also needs: grant temporary on database … to the login"
)


class Migration(Struct, frozen=True):
    number: int
    name: str
    min_known: int
    """The oldest migration number that a running program must know to work with this schema."""
    text: str


def _load() -> tuple[Migration, ...]:
    found = []
    folder = files("leasework.pg").joinpath("sql", "migrations")
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", entry.name)
        if match:
            text = entry.read_text("utf-8")
            known = re.search(r"^-- min_known: (\d+)", text, re.M)
            number = int(match[1])
            found.append(Migration(number, match[2], int(known[1]) if known else number, text))
    return tuple(found)


MIGRATIONS = _load()
SCHEMA_NUMBER = MIGRATIONS[-1].number


def script(schema: str, after: int = 0) -> str:
    """The SQL that brings a schema from migration ``after`` to the newest, as one transaction."""
    begin = "begin;\nset local search_path = pg_catalog, pg_temp;"  # nobody else's functions
    parts = [begin] if after else [begin, _create(schema)]
    for m in MIGRATIONS:
        if m.number > after:
            parts += [for_schema(m.text, schema).rstrip(), _record(schema, m)]
    return "\n".join([*parts, "commit;", ""])


def _create(schema: str) -> str:
    """Create the schema if it is missing. ``if not exists`` needs the privilege in any case."""
    return (
        f"do $$ begin if to_regnamespace('{schema}') is null then\n"
        f"    create schema {in_sql(schema)};\nend if; end $$;"
    )


def statements(schema: str, after: int = 0) -> list[str]:
    """The same as single statements without a transaction, for a tool that opens its own."""
    return _split(script(schema, after))[2:-1]


_PARTS = re.compile(r"--[^\n]*|'[^']*'|\$(\w*)\$.*?\$\1\$|\bbegin atomic\b.*?\bend;|;|.", re.S)


def _split(text: str) -> list[str]:
    """Split at semicolons that end statements. A comment goes with the statement after it."""
    found, this = [], ""
    for part in _PARTS.finditer(text):
        ends = part[0] == ";" or part[0].startswith("begin atomic")
        this += part[0].removesuffix(";") if ends else part[0]
        if ends:
            found.append(this.strip())
            this = ""
    return found


def apply_on(cursor: Any, schema: str) -> None:
    """Apply missing migrations in the open transaction of a user's sync cursor (Django)."""
    cursor.execute(f"select pg_advisory_xact_lock({LOCK_KEY})")
    cursor.execute(_HAS_TABLE, (schema,))
    after = 0
    if cursor.fetchone():
        cursor.execute(f"select max(number) from {in_sql(schema)}.migration")
        after = cursor.fetchone()[0]
        if after is None:
            raise missing(tables=True)
    if after < SCHEMA_NUMBER:  # creating needs a privilege that checking does not
        for one in statements(schema, after):
            cursor.execute(one)


@asynccontextmanager
async def _session(settings: Settings, may: str = "") -> AsyncIterator[Session]:
    """Open a session for one block, with the time limit of a migration. ``may``: what to do if the
    login lacks a privilege, when that is not one of a worker's."""
    try:
        session = await Session.open(settings, "schema")
        try:
            async with session.guarded(Tuning.migration_seconds):
                yield session
        finally:
            await session.close()
    except errors.PermissionDenied as error:
        raise errors.PermissionDenied(error.what, got=error.got, do=may or error.do) from error


async def lift_tokens(settings: Settings) -> int:
    """Lift all tokens above every earlier one; returns the timeline that they now begin with."""
    async with _session(settings) as session, session.connection.transaction():
        await session.connection.execute("set local statement_timeout = 0")
        cursor = await session.connection.execute(
            f"select {in_sql(settings.schema)}.lift_tokens()".encode()
        )
        row = await cursor.fetchone()
        assert row is not None
        return int(row[0])


def _record(schema: str, m: Migration) -> str:
    return (
        f"insert into {in_sql(schema)}.migration (number, name, min_known) "
        f"values ({m.number}, '{m.name}', {m.min_known});"
    )


async def apply(settings: Settings, tell: Callable[[str], None] | None = None) -> list[Migration]:
    """Apply missing migrations and return them, oldest first. ``tell`` receives the progress.
    Raises PermissionDenied if the role may not create them, SchemaTooNew if the schema belongs to a
    newer version."""
    schema = settings.schema
    async with _session(settings, _MAY_APPLY) as session, session.connection.transaction():
        run = session.connection.execute
        # SET LOCAL, because the session's limits are for short statements
        await run("set local statement_timeout = 0; set local lock_timeout = 0")
        tell = tell or (lambda what: None)
        cursor = await run(f"select pg_try_advisory_xact_lock({LOCK_KEY})".encode())
        if (await cursor.fetchone()) != (True,):
            tell("waiting for another process that applies the schema")
            await run(f"select pg_advisory_xact_lock({LOCK_KEY})")
        done = await _applied(session, schema)
        if not done:  # only now: creating needs a privilege that checking does not
            await run(_create(schema).encode())
        await _as_owner(session, schema)
        lacking = [m for m in MIGRATIONS if m.number not in done]
        for m in lacking:
            tell(f"applying {m.number:04}_{m.name}")
            try:
                await run(for_schema(m.text, schema).encode())
            except psycopg.errors.DuplicateTable as error:
                raise missing(tables=True) from error
            await run(_record(schema, m).encode())
        return lacking


async def _as_owner(session: Session, schema: str) -> None:
    """Let the schema's owner own what is created, not the member that applies it: the next member
    must be able to change it, and functions that run with their owner's rights must not run with a
    superuser's."""
    cursor = await session.connection.execute(
        "select n.nspowner::regrole::text from pg_catalog.pg_namespace n "
        f"where n.nspname = '{schema}' and n.nspowner <> current_user::regrole "
        "and pg_has_role(n.nspowner, 'member')".encode()
    )
    owner = await cursor.fetchone()
    if owner:
        await session.connection.execute(f"set local role {owner[0]}".encode())


async def _applied(session: Session, schema: str) -> dict[int, str]:
    """The schema's migrations, number → name; empty if there is no schema. Raises SchemaMissing if
    it has tables but no record of migrations, and SchemaTooNew if it has a migration that this
    version cannot work with."""
    cursor = await session.connection.execute(_HAS_TABLE, (schema,))
    if await cursor.fetchone() is None:
        return {}
    cursor = await session.connection.execute(
        f"select number, name, min_known from {in_sql(schema)}.migration".encode()
    )
    rows = await cursor.fetchall()
    if not rows:
        raise missing(tables=True)
    check_known(max(min_known for _, _, min_known in rows))
    return {number: name for number, name, _ in rows}


def missing(*, tables: bool = False) -> errors.SchemaMissing:
    """Return the error for a database without the schema, or with its ``tables`` alone."""
    if not tables:
        return errors.SchemaMissing(
            "the database has no leasework schema", do="Run: leasework schema apply"
        )
    return errors.SchemaMissing(
        "the schema has tables, but no record of leasework's migrations",
        do="If it is a copy without its rows (pg_dump --schema-only), drop it: drop schema … "
        "cascade. Then run: leasework schema apply. If the tables are yours, give leasework "
        "another schema: LEASEWORK_SCHEMA",
    )


def check_known(min_known: int) -> None:
    """Raises SchemaTooNew if this version does not know the migration that programs must know."""
    if min_known > SCHEMA_NUMBER:
        raise errors.SchemaTooNew(
            f"the schema needs a version of leasework that knows migration {min_known}, "
            f"this version knows {SCHEMA_NUMBER}",
            do="Upgrade leasework in this process",
        )


async def applied(settings: Settings) -> dict[int, str]:
    """The schema's migrations, number → name; empty if there is no schema."""
    async with _session(settings) as session:
        return await _applied(session, settings.schema)


async def verify(settings: Settings) -> list[str]:
    """How the schema differs from a fresh one, in words; empty if it does not. The fresh one has
    temporary objects, which every login may create, and is rolled back."""
    async with _session(settings, _MAY_VERIFY) as session:
        have = await _applied(session, settings.schema)
        if not have:
            raise missing()
        unapplied = [
            f"migration {m.number:04}_{m.name}" for m in MIGRATIONS if m.number not in have
        ]
        run = session.connection.execute
        try:
            await run("begin")
            await run("set local statement_timeout = 0; set local quote_all_identifiers = off")
            here = await _describe(session, settings.schema)
            await run("set local search_path = pg_catalog")
            for m in MIGRATIONS:
                await run(for_schema(m.text, "pg_temp").encode())
            cursor = await run("select pg_my_temp_schema()::regnamespace::text")
            fresh = await _describe(session, str((await cursor.fetchone() or [""])[0]))
        finally:
            await run("rollback")
    lacking = [f"missing: {line}" for line in [*unapplied, *sorted(fresh - here)]]
    return lacking + [f"unexpected: {line}" for line in sorted(here - fresh)]


async def _describe(session: Session, schema: str) -> set[str]:
    """Describe the objects of a schema, without its name. What is on the search path has none;
    the rest is what PostgreSQL always names in full, and the text of functions."""
    run = session.connection.execute
    await run(f"set local search_path = {in_sql(schema)}".encode())
    text = files("leasework.pg").joinpath("sql", "migrations", "describe.sql").read_text("utf-8")
    cursor = await run(text, {"schema": schema})
    name = re.compile(
        rf"{in_sql(schema)}\.|(?:(?<=ON )|(?<=ONLY )){schema}\.|(?<='){schema}(?=')"
        r"|\"?\bpg_temp(?:_\d+)?\b\"?\.|(?<=')pg_temp(?=')"
    )
    return {name.sub("", str(row[0])) for row in await cursor.fetchall()}
