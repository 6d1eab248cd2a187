"""Provides real PostgreSQL servers, and a new database for each test."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
from leasework_lab.server import LabServer
from psycopg.conninfo import make_conninfo

MEMORY = "/dev/shm"
ROOM_BYTES = 2 * 1024**3


def quick_place() -> str:
    """Return the folder for the files of test servers: in memory if there is room.

    A database has about 1,000 files, and each test creates and drops one. On a disk this takes ten
    times as long.
    """
    if not os.access(MEMORY, os.W_OK) or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return "/tmp"
    return MEMORY if shutil.disk_usage(MEMORY).free > ROOM_BYTES else "/tmp"


VERSIONS = ("18", "16", "15")
_numbers = itertools.count(1)


def chosen_version() -> str:
    """Return the version in LEASEWORK_TEST_POSTGRES: 18 (the default), 16, or 15 (Debian's)."""
    version = os.environ.get("LEASEWORK_TEST_POSTGRES") or VERSIONS[0]
    if version not in VERSIONS:
        raise LookupError(f"LEASEWORK_TEST_POSTGRES={version}: one of {', '.join(VERSIONS)}")
    return version


def server(version: str | None = None, settings: Mapping[str, str] | None = None) -> LabServer:
    """Start a server (``.dsn``, ``.pid``, ``.data_dir``, ``.restart(mode)``). Use it in a ``with``
    statement, which stops and removes it at the end. ``settings`` are PostgreSQL's."""
    return LabServer.start(
        version or chosen_version(), settings, prefix="lh-test-", place=quick_place()
    )


@contextmanager
def database(
    dsn: str,
    encoding: str = "UTF8",
    template: str | None = None,
    admin: psycopg.Connection[Any] | None = None,
) -> Iterator[str]:
    """Yield the DSN of a new database, empty or copied, and drop it at the end, even if it has
    connections. Both over ``admin``, an autocommit connection, or else over two new ones."""
    name = f"test{os.getpid()}_{next(_numbers)}"
    # copies of files cost the server less than pages in its log
    options = f" template {template} strategy file_copy" if template else ""
    if encoding != "UTF8":
        options = f" encoding '{encoding}' locale_provider libc locale 'C' template template0"
    command: Callable[[str], object] = admin.execute if admin else partial(_run, dsn)
    command(f"create database {name}{options}")
    try:
        yield make_conninfo(dsn, dbname=name)
    finally:
        command(f"drop database if exists {name} with (force)")


@contextmanager
def admin_of(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """An autocommit connection to another database of the server."""
    with psycopg.connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as connection:
        yield connection


def _run(dsn: str, command: str) -> None:
    with admin_of(dsn) as connection:
        connection.execute(command)
