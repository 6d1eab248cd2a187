"""Opens a connection to the first suitable address of a DSN.

libpq would give each address the same time, and one that accepts a connection but does not answer
would use it up for all the others. Here each address has its share of the time that is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_attempts_async, make_conninfo
from psycopg.pq import PGconn

from leasework.pg.connection.fast.link import Link

_WHERE = ("host", "hostaddr", "port", "load_balance_hosts", "connect_timeout")


async def connect(options: Mapping[str, Any], seconds: float) -> Link:
    """Connect in autocommit and in UTF-8, whatever the environment, the DSN, the role or the
    database say. The encoding is a startup parameter, which poolers keep for each client. Raises
    psycopg.Error or OSError if no address is suitable, and TimeoutError after ``seconds``."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    failed: list[Exception] = []
    located = _located({**options, "client_encoding": "UTF8"})
    async with asyncio.timeout_at(give_up_at):
        addresses: list[Any] = await conninfo_attempts_async(located)
    try:
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            try:
                async with asyncio.timeout((give_up_at - loop.time()) / left):
                    return await Link.connect(**address, autocommit=True)
            except (psycopg.Error, OSError) as error:
                failed.append(error)
        # a refusal says more than a timeout
        silent = (TimeoutError, psycopg.errors.ConnectionTimeout)
        raise next((error for error in failed if not isinstance(error, silent)), failed[-1])
    finally:  # their tracebacks hold this frame: the cycle would keep the sockets open
        failed.clear()


def _located(options: dict[str, Any]) -> dict[str, Any]:
    """Add the hosts that libpq takes from a service file or the environment. libpq reads both, and
    then refuses the last option before it connects."""
    read = PGconn.connect_start(make_conninfo(**{**options, "channel_binding": "none"}).encode())
    found = {each.keyword.decode(): each.val for each in read.info}
    read.finish()
    return {**options, **{name: value.decode() for name in _WHERE if (value := found.get(name))}}


async def read_iso(connection: Link) -> None:
    """Make the server write times in ISO 8601, the only format that psycopg reads. Poolers keep
    this setting for each client. Raises psycopg.Error."""
    style = connection.info.parameter_status("DateStyle") or ""
    if not style.startswith("ISO"):
        await connection.execute("set datestyle to iso", prepare=False)
