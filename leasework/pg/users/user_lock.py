"""Advisory locks in the user's transaction, on the user's own connection."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from leasework.errors import Unavailable
from leasework.model.lock_key import LockKey
from leasework.pg.users.kinds import recognise
from leasework.pg.users.user import UserConnections
from leasework.tuning import Tuning


async def lock_on(
    users: UserConnections,
    connection: Any,
    key: LockKey,
    *,
    shared: bool,
    wait: float | None,
    check: bool,
) -> tuple[bool, bool]:
    """Take the lock. Return whether it is acquired, and whether the server shows it (``check``).
    ``wait`` is in seconds; None tries once. A wait that ends without the lock leaves the
    transaction unchanged. If the server does not answer at all, the connection's socket is shut
    down. Raises WrongConnection, Conflict (a deadlock, or the role's statement_timeout), or
    Unavailable."""
    params = {
        **key.params,
        "shared": shared,
        "wait_ms": None if wait is None else max(1, round(wait * 1000)),
        "check": check,
    }
    if wait is None:
        return await _take(users, connection, params)
    limit = wait + Tuning.wait_margin_seconds
    with _timer(limit, await _ender(connection)) as late:
        try:
            return await _take(users, connection, params)
        except Exception as error:
            if late():
                raise Unavailable(
                    f"the database did not answer within {limit:.3g} s; the connection was ended",
                    sent=True,
                ) from error
            raise


async def _take(users: UserConnections, on: Any, params: dict[str, Any]) -> tuple[bool, bool]:
    [[got, shown]] = await users.fetch(on, "user/advisory_lock", params)
    return bool(got), bool(shown)


@contextmanager
def _timer(seconds: float, end: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """End the connection when the time is up, so that the waiting call fails at once. This needs a
    thread, because a sync driver blocks the event loop."""
    over = threading.Event()

    def fire() -> None:
        over.set()
        end()

    timer = threading.Timer(seconds, fire)
    timer.daemon = True
    timer.start()
    try:
        yield over.is_set
    finally:
        timer.cancel()


async def _ender(connection: Any) -> Callable[[], None]:
    """A function that ends the connection, prepared before the call may hang."""
    driver = await _driver(connection)
    if hasattr(driver, "terminate"):  # asyncpg
        loop = asyncio.get_running_loop()

        def terminate() -> None:
            with suppress(RuntimeError):  # the event loop is closed, and so is the connection
                loop.call_soon_threadsafe(driver.terminate)

        return terminate

    def shut() -> None:
        with suppress(Exception), socket.socket(fileno=os.dup(driver.fileno())) as twin:
            twin.shutdown(socket.SHUT_RDWR)

    return shut


async def _driver(given: Any) -> Any:
    """Return the driver's connection inside a framework's. None if it is not available: the next
    statement then reports why."""
    with suppress(Exception):
        kind, connection = recognise(given)
        if kind == "sqlalchemy async":  # an async_scoped_session has no run_sync
            target = connection if hasattr(connection, "run_sync") else connection()
            return await target.run_sync(_of_sqlalchemy)
        if kind == "sqlalchemy":
            return _of_sqlalchemy(connection)
        return connection.connection if kind == "django" else connection
    return None


def _of_sqlalchemy(target: Any) -> Any:
    connection = target.connection() if hasattr(target, "get_bind") else target
    return connection.connection.driver_connection
