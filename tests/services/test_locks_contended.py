"""Many processes that contend for one lock. Each App here has a guard and connections of its own: a
process each."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from leasework import App
from leasework.config import Settings
from leasework.pg.schema import migrate
from leasework.tuning import Tuning
from tests.services.several import Database, several_apps
from tests.support import postgres as servers

LONG = bool(os.environ.get("LEASEWORK_LONG"))
PROCESSES, TASKS, TIMES = (100, 10, 3) if LONG else (6, 10, 3)
"""LEASEWORK_LONG=1: a thousand contenders."""
RECOVER_WITHIN = 60 if LONG else 15
"""Seconds; a busy machine that keeps a hundred nodes from renewing in time is not what is asked."""
LIMIT_SECONDS = 250 if LONG else 110


@pytest.fixture
def dsns(own_postgres: Callable[..., Any], dsn: str, migrated: str) -> Iterator[tuple[str, str]]:
    """In the long form a server with room: each process has four connections here."""
    if LONG:
        server = own_postgres(settings={"max_connections": str(PROCESSES * 4 + 50)})
        with servers.database(server.dsn) as on_it:
            asyncio.run(migrate.apply(Settings(dsn=on_it)))
            yield on_it, on_it
    else:
        yield dsn, migrated


@pytest.fixture
async def database(dsns: tuple[str, str]) -> AsyncIterator[Database]:
    async with several_apps(*dsns) as database:
        yield database


def statements(app: App) -> int:
    """What its leases asked of the database beside the heartbeat."""
    light = app.desk._light
    store: Any = light.guard.contests._store if light else None
    return store.pool.statements if store else 0


@pytest.mark.timeout(LIMIT_SECONDS + 50)
async def test_contenders_hold_it_one_at_a_time_and_nobody_waits_longer_than_declared(database):
    apps = [App(database.dsn, recover_within=RECOVER_WITHIN) for _ in range(PROCESSES)]
    database.apps += apps
    tokens: list[int] = []
    owners: list[int] = []
    waited: list[int] = []
    inside = 0

    async def contend(number: int) -> None:
        nonlocal inside
        for _ in range(TIMES):
            asked = len(tokens)
            async with apps[number].lock("x") as lock:
                inside += 1
                assert inside == 1
                waited.append(len(tokens) - asked)
                tokens.append(lock.token)
                owners.append(number)
                await asyncio.sleep(0)
                assert inside == 1 and lock.held
                inside -= 1

    # each process has its node before the race begins
    for app in apps:
        assert await app.lock(f"warm{id(app)}").try_acquire()
    before = sum(statements(app) for app in apps)
    began = time.monotonic()
    async with asyncio.timeout(LIMIT_SECONDS):
        await asyncio.gather(*[contend(n) for n in range(PROCESSES) for _ in range(TASKS)])
    took = time.monotonic() - began
    spent = (sum(statements(app) for app in apps) - before) / len(tokens)
    turns = -(-TASKS // (Tuning.handovers + 1)) + 1
    bound = turns * PROCESSES * (Tuning.handovers + 1)
    print(
        f"\nMEASURED {PROCESSES} processes of {TASKS} tasks: {len(tokens)} acquisitions in"
        f" {took:.2f} s, {spent:.2f} statements each; the longest wait was {max(waited)} others,"
        f" declared are {bound}; the longest row of one process was {longest_row(owners)}"
    )
    assert tokens == sorted(set(tokens)) and len(tokens) == PROCESSES * TASKS * TIMES
    assert set(Counter(owners).values()) == {TASKS * TIMES}, "each had it as often as it asked"
    assert max(waited) <= bound
    assert spent < 3


def longest_row(owners: list[int]) -> int:
    """How often in a row one process had it."""
    longest = row = 0
    before = -1
    for owner in owners:
        row = row + 1 if owner == before else 1
        longest, before = max(longest, row), owner
    return longest
