"""Waits for the database before a node starts."""

from __future__ import annotations

import asyncio

from leasework import errors
from leasework.config import Settings
from leasework.env import Env
from leasework.store.store import Store
from leasework.telemetry import Emit


def longest_join(settings: Settings) -> float:
    """How long a process may take to register, in seconds. It has a connection already, and must
    not keep it for ever from others that are short of one as well."""
    return settings.call_timeout + settings.recover_within


def not_joined() -> errors.Unavailable:
    return errors.Unavailable(
        "this process could not register in time",
        do="Check that the server, the role and the pooler permit enough connections",
    )


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
