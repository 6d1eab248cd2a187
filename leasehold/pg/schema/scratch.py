"""A fresh database for tests, dropped at the end even if clients are still connected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
from psycopg import sql

from leasehold.config import Settings
from leasehold.pg.connection.dsn import as_url, read_dsn
from leasehold.pg.connection.faults import translate
from leasehold.pg.schema import migrate


@contextmanager
def scratch_database(
    server_dsn: str, name: str, schema: str, template: str | None = None
) -> Iterator[str]:
    """The DSN (a URL) of a new database with leasehold's schema, or a copy of the database
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


def _command(dsn: str, command: str, *names: str) -> None:
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(sql.SQL(command).format(*map(sql.Identifier, names)))
    except psycopg.Error as error:
        raise translate(error, sent=True) from error
