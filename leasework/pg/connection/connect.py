"""Opens a connection to the first suitable host of a DSN.

libpq tries one host after the other, each for connect_timeout. A host that accepts a connection
but does not answer (frozen, cut off) would use up the time for all the others, and after a failover
no process would reach the new primary. So this module also tries the next host when the previous
one fails or is silent for a moment, and uses the first connection that succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psycopg

from leasework import own_tasks
from leasework.pg.connection.fast.link import Link
from leasework.tuning import Tuning


async def connect(options: Mapping[str, Any]) -> Link:
    """Connect in autocommit and in UTF-8, whatever the environment, the DSN, the role or the
    database say. The encoding is a startup parameter, which poolers keep for each client.

    Raises psycopg.Error or OSError if no host is suitable.
    """
    attempts = one_host_each({**options, "client_encoding": "UTF8"})
    if len(attempts) == 1:
        return await Link.connect(**attempts[0], autocommit=True)
    asked: list[asyncio.Task[Link]] = []
    found = None
    try:
        for attempt in attempts:
            asked.append(own_tasks.start(Link.connect(**attempt, autocommit=True)))
            found = await _first(asked, Tuning.host_head_start_seconds)
            if found is not None:
                return found
        found = await _first(asked, None)
        if found is None:
            raise _reason(asked)
        return found
    finally:
        await _drop_all_but(found, asked)


async def read_iso(connection: Link) -> None:
    """Make the server write times in ISO 8601, the only format that psycopg reads. Poolers keep
    this setting for each client. Raises psycopg.Error."""
    style = connection.info.parameter_status("DateStyle") or ""
    if not style.startswith("ISO"):
        await connection.execute("set datestyle to iso", prepare=False)


def one_host_each(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the options for each host, in order, with its port."""
    lists = {
        name: str(options[name]).split(",")
        for name in ("host", "hostaddr", "port")
        if options.get(name)
    }
    count = max((len(values) for values in lists.values()), default=1)
    if count == 1:
        return [dict(options)]
    return [
        {**options, **{name: v[i] if len(v) == count else v[0] for name, v in lists.items()}}
        for i in range(count)
    ]


async def _first(asked: list[asyncio.Task[Link]], seconds: float | None) -> Link | None:
    """Return the first connection. None if all have failed, or after ``seconds``."""
    pending = {task for task in asked if not task.done()}
    loop = asyncio.get_running_loop()
    end = None if seconds is None else loop.time() + seconds
    while pending:
        left = None if end is None else max(0.0, end - loop.time())
        done, pending = await asyncio.wait(
            pending, timeout=left, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            if not task.cancelled() and task.exception() is None:
                return task.result()
        if not done:
            break
    return None


def _reason(asked: list[asyncio.Task[Link]]) -> BaseException:
    """Return the most useful of the errors: a refusal rather than a timeout."""
    errors = [error for task in asked if (error := task.exception()) is not None]
    spoken = [error for error in errors if "timeout" not in str(error).lower()]
    return (spoken or errors)[0]


async def _drop_all_but(found: Link | None, asked: list[asyncio.Task[Link]]) -> None:
    for task in asked:
        if not task.done():
            task.cancel()
            task.add_done_callback(_close_late)
        elif task.cancelled() or task.exception() is not None or task.result() is found:
            continue
        else:
            with suppress(psycopg.Error, OSError):
                await task.result().close()


def _close_late(task: asyncio.Task[Link]) -> None:
    """Close a connection that succeeded at the moment of its cancellation."""
    if not task.cancelled() and task.exception() is None:
        task.result().pgconn.finish()
