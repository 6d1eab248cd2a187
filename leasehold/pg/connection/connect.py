"""Opens a connection to the first host of a DSN that will do.

libpq asks the hosts one after the other, each for as long as connect_timeout: a host that takes
the call and does not answer (frozen, cut off) uses up the time of all the others, and after a
failover nobody ever reaches the new primary. So the next host is asked when the one before it has
failed, or has kept silent for a moment; the first that will do is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psycopg

from leasehold.pg.connection.link import Link

HEAD_START_SECONDS = 0.25
"""What a host gets before the next one is asked as well."""


async def connect(options: Mapping[str, Any]) -> Link:
    """In autocommit, and in UTF-8 whatever the environment, the DSN, the role or the database say:
    a startup parameter, which poolers keep for each client.

    Raises psycopg.Error or OSError: the first host's, when none will do.
    """
    attempts = one_host_each({**options, "client_encoding": "UTF8"})
    if len(attempts) == 1:
        return await Link.connect(**attempts[0], autocommit=True)
    asked: list[asyncio.Task[Link]] = []
    found = None
    try:
        for attempt in attempts:
            asked.append(asyncio.ensure_future(_one(attempt)))
            found = await _first(asked, HEAD_START_SECONDS)
            if found is not None:
                return found
        found = await _first(asked, None)
        if found is None:
            raise _reason(asked)
        return found
    finally:
        await _drop_all_but(found, asked)


async def read_iso(connection: Link) -> None:
    """Have the server write times as ISO 8601, which is all that psycopg reads. Poolers keep this
    setting for each client. Raises psycopg.Error."""
    style = connection.info.parameter_status("DateStyle") or ""
    if not style.startswith("ISO"):
        await connection.execute("set datestyle to iso", prepare=False)


def one_host_each(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same options with a single host and port each, in their order."""
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


async def _one(options: dict[str, Any]) -> Link:
    return await Link.connect(**options, autocommit=True)


async def _first(asked: list[asyncio.Task[Link]], seconds: float | None) -> Link | None:
    """The first that is connected; None once all have failed, or after the seconds."""
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
    """Of several failures the one that says most: a refusal before a silence."""
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
    """Connected in the very moment in which it was cancelled."""
    if not task.cancelled() and task.exception() is None:
        task.result().pgconn.finish()
