"""A database and several applications on it: each App has a guard and connections of its own, as a
process each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from leasework import App
from leasework.config import Timings, wait_seconds

TIMES = Timings.derive(9)
W = wait_seconds(TIMES.lease)


class Database:
    def __init__(self, dsn: str, connection: psycopg.AsyncConnection[Any]) -> None:
        self.dsn = dsn
        self.apps: list[App] = []
        self._connection = connection

    def app(self, **options: Any) -> App:
        self.apps.append(App(self.dsn, **{"recover_within": 9, **options}))
        return self.apps[-1]

    async def sql(self, text: str, *params: Any) -> list[Any]:
        cursor = await self._connection.execute(text.encode(), params)
        return await cursor.fetchall() if cursor.description else []

    async def events(self, kind: str) -> list[Any]:
        return [
            f for (f,) in await self.sql("select fields from leasework.event where kind = %s", kind)
        ]


def waiting(app: App, name: str) -> int:
    light = app.desk._light
    contest = light.guard.contests._all.get(name) if light else None
    return len(contest.waiting) if contest else 0


@asynccontextmanager
async def several_apps(dsn: str, direct_dsn: str) -> AsyncIterator[Database]:
    async with await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True) as connection:
        database = Database(dsn, connection)
        yield database
        for app in database.apps:
            await asyncio.to_thread(app.desk.close)
            await app.close()
