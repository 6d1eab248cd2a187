"""Databases for tests: a fresh one, dropped at the end even if clients are still connected, and one
that is emptied."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
from psycopg import sql

from leasework.config import Settings
from leasework.errors import ConfigError
from leasework.pg.connection.dsn import as_url, read_dsn
from leasework.pg.connection.faults import translate
from leasework.pg.schema import migrate
from leasework.pg.sql import for_schema


@contextmanager
def scratch_database(
    server_dsn: str, name: str, schema: str, template: str | None = None
) -> Iterator[str]:
    """The DSN (a URL) of a new database with leasework's schema, or a copy of the database
    ``template``. The role needs CREATEDB."""
    dsn = as_url({**read_dsn(server_dsn), "dbname": name})
    if template:
        _command(server_dsn, "create database {} template {}", name, template)
    else:
        _command(server_dsn, "create database {}", name)
    try:
        if not template:
            with ThreadPoolExecutor(1) as thread:  # the caller's thread may run an event loop
                thread.submit(
                    lambda: asyncio.run(migrate.apply(Settings(dsn=dsn, schema=schema)))
                ).result()
        yield dsn
    finally:
        _command(server_dsn, "drop database if exists {} with (force)", name)


EMPTIED = (
    "job", "job_done", "attempt", "job_key", "claimed_to", "repeated", "schedule",
    "tick", "deadline", "node", "death", "bid", "signal", "stack", "event", "history", "tally",
    "step", "inbox", "batch", "total", "limits", "limit_key", "weight", "pause", "silence",
    "ended_session",
)  # fmt: skip
"""The tables that :func:`empty` empties. The other ones keep tokens and releases growing."""
_ALIVE = """
select leasework.worker_id(host, pid, id) from leasework.node
where renewed_at > clock_timestamp() - make_interval(secs => lease_seconds) limit 1
"""
_LOCK_SECONDS = 5


def check_for_tests(dsn: str, act: str) -> None:
    """Raise ConfigError if the database's name does not contain the word ``test``. ``act`` is what
    a test would do there."""
    name = read_dsn(dsn).get("dbname", "")
    if not re.search(r"(?<![a-z])(tests?|testing)(?![a-z])", name.lower()):
        raise ConfigError(
            f"{act} only works in a database whose name contains the word 'test'",
            got=name,
            do="Run the test in a database of its own. In Django, use TransactionTestCase",
        )


def empty(dsn: str, schema: str) -> None:
    """Delete all jobs, schedules, deadlines, nodes and events, with their history. Tokens keep
    growing. Raises ConfigError if the database is not one for tests, or if a node is alive there,
    and Conflict if a transaction keeps the tables for 5 seconds."""
    check_for_tests(dsn, "clear")
    try:
        with psycopg.connect(dsn) as connection:
            alive = connection.execute(for_schema(_ALIVE, schema).encode()).fetchone()
            if alive:
                raise ConfigError(
                    "the database is in use by a node, so it is not emptied",
                    got=alive[0],
                    do="Stop the nodes of the test first",
                )
            connection.execute(sql.SQL("set local lock_timeout = {}").format(_LOCK_SECONDS * 1000))
            tables = [sql.Identifier(schema, table) for table in EMPTIED]
            connection.execute(sql.SQL("truncate {}").format(sql.SQL(", ").join(tables)))
    except psycopg.Error as error:
        raise translate(error, sent=True) from error


def _command(dsn: str, command: str, *names: str) -> None:
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(sql.SQL(command).format(*map(sql.Identifier, names)))
    except psycopg.Error as error:
        raise translate(error, sent=True) from error
