"""Waits for the database before a node starts."""

from __future__ import annotations

import asyncio

from leasehold import errors
from leasehold.config import Settings
from leasehold.env import Env
from leasehold.ports import Store
from leasehold.telemetry import Emit


async def reach_database(store: Store, settings: Settings, env: Env, emit: Emit) -> None:
    """Return when the database answers. Raises Unavailable if it does not answer within
    ``call_timeout``, and ServerError at once if leasehold cannot work with it."""
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
