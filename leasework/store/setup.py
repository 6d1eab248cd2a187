"""Reads the set-up for the doctor, without judging it. It opens a connection of its own instead of
a Session, which refuses a login without privileges."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import psycopg
from msgspec import Struct, field

from leasework import errors
from leasework.config import Settings
from leasework.pg.connection.connect import connect, read_iso
from leasework.pg.connection.fast.link import Link, Row
from leasework.pg.connection.faults import translate
from leasework.pg.connection.session import connect_options
from leasework.pg.schema import migrate
from leasework.pg.schema.roles import rights
from leasework.pg.sql import statement
from leasework.tuning import Tuning

_SERVER = "backend_pid version login database settings"


class Tokens(Struct, frozen=True):
    """The source of the next tokens, and the highest one that the database has."""

    timeline: int | None
    """The server's timeline, or None if the server does not report it."""
    following: int | None
    """The token of the next claim. None: the row that keeps tokens growing was deleted."""
    highest: int | None
    """The highest token of a node or a failed attempt."""
    behind: bool
    """The sequence of the events is behind their rows."""


class Setup(Struct):
    """The facts that the checks of the set-up judge."""

    schema: str
    role: str
    """What the login is for: ``worker``, ``enqueue`` or ``observer``."""
    server: dict[str, Any]
    """version, login, database, pooled and settings."""
    denied: list[str] = field(default_factory=list)
    """The privileges of the role that this login lacks, in words."""
    tokens: Tokens | None = None
    """None: not read."""
    differences: list[str] = field(default_factory=list)
    """How the schema differs from a new one."""
    not_compared: str = ""
    """Why the schema was not compared with a new one."""


async def examine(settings: Settings, role: str, readable: bool) -> Setup:
    """Read the set-up for a login of this ``role``. ``readable``: the application could be read, so
    that its tables are there. Raises LeaseworkError."""
    try:
        async with asyncio.timeout(Tuning.doctor_seconds):
            connection = await connect(connect_options(settings, "doctor"), settings.call_timeout)
            try:
                connection.prepare_threshold = None
                await read_iso(connection)
                found = await _read(connection, settings, role)
                if readable:
                    with suppress(psycopg.errors.InsufficientPrivilege):  # it is among the denied
                        rows = await _ask(connection, settings, "doctor/tokens", {})
                        found.tokens = Tokens(*rows[0])
            finally:
                with suppress(psycopg.Error, OSError):
                    await connection.close()
    except TimeoutError:
        raise errors.Unavailable("the database did not answer in time") from None
    except (psycopg.Error, OSError) as error:
        raise translate(error, sent=False) from error
    if readable:
        try:
            found.differences = await migrate.verify(settings)
        except errors.PermissionDenied as error:
            found.not_compared = " ".join(str(error).split())
    return found


async def _ask(
    connection: Link, settings: Settings, name: str, params: dict[str, Any]
) -> list[Row]:
    text = statement(name, settings.schema)
    return await (await connection.execute(text.encode(), params)).fetchall()


async def _read(connection: Link, settings: Settings, role: str) -> Setup:
    (row,) = await _ask(connection, settings, "doctor/server", {})
    server = dict(zip(_SERVER.split(), row, strict=True))
    server["pooled"] = server.pop("backend_pid") != connection.info.backend_pid
    names, privileges = zip(*rights(role), strict=True)
    wanted = {"names": list(names), "privileges": list(privileges), "schema": settings.schema}
    denied = await _ask(connection, settings, "doctor/denied", wanted)
    return Setup(
        schema=settings.schema,
        role=role,
        server=server,
        denied=[f"{privilege} on {name}" for name, privilege in denied],
    )
