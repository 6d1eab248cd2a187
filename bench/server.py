"""The Postgres of a run: one of our own with fixed settings, or the one of a DSN on this machine,
and a fresh database for each measurement."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "30min",
}
"""Durable; no checkpoint falls into a slice of a few seconds."""

_SHOWN = (*SETTINGS, "full_page_writes", "wal_level", "autovacuum", "jit", "max_connections")
_numbers = itertools.count(1)


class Server:
    """``admin``: a connection of the harness to the database ``postgres``."""

    def __init__(self, dsn: str, postmaster: int | None, log: Path | None = None) -> None:
        self.dsn = dsn
        self.admin: psycopg.Connection[Any] = psycopg.connect(
            make_conninfo(dsn, dbname="postgres"), autocommit=True
        )
        self.postmaster = postmaster
        self.log = log

    def settings(self) -> dict[str, str]:
        rows = self.admin.execute(
            "select name, current_setting(name) from pg_settings where name = any(%s)",
            [list(_SHOWN)],
        ).fetchall()
        return {"server_version": self.version, **{name: str(value) for name, value in rows}}

    @property
    def version(self) -> str:
        row = self.admin.execute("show server_version").fetchone()
        assert row
        return str(row[0])

    def checkpoint(self) -> None:
        self.admin.execute("checkpoint")

    def backends(self, dbname: str) -> set[int]:
        """Pids of the client backends of a database."""
        rows = self.admin.execute(
            "select pid from pg_stat_activity where datname = %s"
            " and backend_type = 'client backend'",
            [dbname],
        ).fetchall()
        return {row[0] for row in rows}

    @contextmanager
    def database(self, template: str | None = None) -> Iterator[str]:
        """The DSN of a new database, dropped at the end."""
        name = f"bench_{os.getpid()}_{next(_numbers)}"
        self.create(name, template)
        try:
            yield url(self.dsn, name)
        finally:
            self.drop(name)

    def create(self, name: str, template: str | None = None) -> str:
        self.admin.execute(
            sql.SQL("create database {} template {}").format(
                sql.Identifier(name), sql.Identifier(template or "template0")
            )
        )
        return url(self.dsn, name)

    def drop(self, name: str) -> None:
        self.admin.execute(
            sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
        )


def url(dsn: str, dbname: str) -> str:
    """``postgresql://…`` to another database of that server: not every driver reads key=value."""
    parts = {k: str(v) for k, v in conninfo_to_dict(dsn).items() if v is not None}
    user, password = quote(parts.pop("user", "")), quote(parts.pop("password", ""), safe="")
    parts.pop("dbname", None)
    account = f"{user}:{password}@" if password else f"{user}@" if user else "@"
    return f"postgresql://{account}/{quote(dbname)}?{urlencode(parts)}"


@contextmanager
def server(dsn: str | None = None, version: str | None = None) -> Iterator[Server]:
    """The server of ``dsn``; without one, a PostgreSQL of our own in a temporary folder."""
    if dsn:
        running = Server(dsn, None)
        try:
            yield running
        finally:
            running.admin.close()
        return
    from leasework_lab.server import LabServer

    with LabServer.start(version, SETTINGS, prefix="leasework-bench-") as own:
        running = Server(own.dsn, own.pid, own.data_dir / "postgres.log")
        yield running
        running.admin.close()
