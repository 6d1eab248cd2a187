"""Waits for the database before a node starts."""

from __future__ import annotations

import asyncio

from leasework import errors
from leasework.config import Settings
from leasework.env import Env
from leasework.store.store import Store
from leasework.telemetry import Emit


async def registered(joined: asyncio.Future[None], settings: Settings) -> None:
    """Wait until this process has registered. Raises Unavailable if that takes long: it has a
    connection already, and must not keep it from others that are short of one as well."""
    try:
        async with asyncio.timeout(settings.call_timeout + settings.recover_within):
            await asyncio.shield(joined)
    except TimeoutError:
        raise errors.Unavailable(
            "this process could not register in time",
            do="Check that the server, the role and the pooler permit enough connections",
        ) from None


async def reach_database(store: Store, settings: Settings, env: Env, emit: Emit) -> None:
    """Return when the database answers. Raises Unavailable if it does not answer within
    ``call_timeout``, and ServerError at once if leasework cannot work with it."""
    give_up_at = env.boot_now() + settings.call_timeout
    while True:
        try:
            await store.database_now(env.due_now())
            return
        except errors.Unavailable as error:
            emit("database_lost", service="start", error=str(error))
            if env.boot_now() >= give_up_at:
                raise
        await asyncio.sleep(env.jitter(0.5, 0.25))
