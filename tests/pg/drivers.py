"""Every driver and framework whose connections ``on=`` takes, behind one small face."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg
import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy import URL, create_engine, text
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from leasework.own_tasks import may_block


@dataclass
class Way:
    """A connection of the user's in an open transaction, and how that ends."""

    connection: Any
    execute: Callable[[str], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]

    async def effect(self, value: int = 1) -> None:
        """What the user's own code does in the same transaction."""
        await done(self.execute(f"insert into effect values ({value})"))


async def done(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def url(dsn: str, driver: str) -> URL:
    """The DSN of a unix socket as SQLAlchemy wants it."""
    given = conninfo_to_dict(dsn)
    return URL.create(
        f"postgresql+{driver}",
        username=given.get("user"),
        database=given["dbname"],
        query={"host": str(given["host"]), "port": str(given.get("port", 5432))},
    )


def asyncpg_arguments(dsn: str) -> dict[str, Any]:
    given = conninfo_to_dict(dsn)
    return {
        "host": given["host"],
        "port": int(given.get("port") or 5432),
        "user": given.get("user"),
        "database": given["dbname"],
    }


# -- the drivers themselves ------------------------------------------------------------------------
@asynccontextmanager
async def psycopg_sync(dsn: str) -> AsyncIterator[Way]:
    with psycopg.connect(dsn) as c:
        yield Way(c, lambda sql: c.execute(sql.encode()), c.commit, c.rollback)


@asynccontextmanager
async def psycopg_dicts(dsn: str) -> AsyncIterator[Way]:
    """Autocommit with a transaction block, and rows that are dicts."""
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as c:
        c.execute("begin")
        yield Way(
            c,
            lambda sql: c.execute(sql.encode()),
            lambda: c.execute("commit"),
            lambda: c.execute("rollback"),
        )


@asynccontextmanager
async def psycopg_async(dsn: str) -> AsyncIterator[Way]:
    async with await psycopg.AsyncConnection.connect(dsn) as c:
        yield Way(c, lambda sql: c.execute(sql.encode()), c.commit, c.rollback)


@asynccontextmanager
async def asyncpg_connection(dsn: str) -> AsyncIterator[Way]:
    c = await asyncpg.connect(**asyncpg_arguments(dsn))
    transaction = c.transaction()
    await transaction.start()
    try:
        yield Way(c, c.execute, transaction.commit, transaction.rollback)
    finally:
        await c.close()


@asynccontextmanager
async def asyncpg_pool(dsn: str) -> AsyncIterator[Way]:
    """A pool whose connections have a codec for jsonb, as many applications set one."""
    import json

    async def set_codec(c: Any) -> None:
        await c.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")

    arguments = asyncpg_arguments(dsn)
    async with (
        asyncpg.create_pool(min_size=1, max_size=1, init=set_codec, **arguments) as pool,
        pool.acquire() as c,
    ):
        transaction = c.transaction()
        await transaction.start()
        yield Way(c, c.execute, transaction.commit, transaction.rollback)


# -- SQLAlchemy ----------------------------------------------------------------------------------
@asynccontextmanager
async def sa_connection(dsn: str) -> AsyncIterator[Way]:
    engine = create_engine(url(dsn, "psycopg"), poolclass=NullPool)
    with engine.connect() as c:
        yield Way(c, lambda sql: c.execute(text(sql)), c.commit, c.rollback)


@asynccontextmanager
async def sa_session(dsn: str, driver: str = "psycopg") -> AsyncIterator[Way]:
    engine = create_engine(url(dsn, driver), poolclass=NullPool)
    with Session(engine) as s:
        yield Way(s, lambda sql: s.execute(text(sql)), s.commit, s.rollback)


@asynccontextmanager
async def sa_scoped(dsn: str) -> AsyncIterator[Way]:
    engine = create_engine(url(dsn, "psycopg"), poolclass=NullPool)
    s = scoped_session(sessionmaker(engine))
    try:
        yield Way(s, lambda sql: s.execute(text(sql)), s.commit, s.rollback)
    finally:
        s.remove()


@asynccontextmanager
async def sa_async_connection(dsn: str, driver: str) -> AsyncIterator[Way]:
    engine = create_async_engine(url(dsn, driver), poolclass=NullPool)
    async with engine.connect() as c:
        yield Way(c, lambda sql: c.execute(text(sql)), c.commit, c.rollback)


@asynccontextmanager
async def sa_async_session(dsn: str, driver: str) -> AsyncIterator[Way]:
    engine = create_async_engine(url(dsn, driver), poolclass=NullPool)
    async with AsyncSession(engine) as s:
        yield Way(s, lambda sql: s.execute(text(sql)), s.commit, s.rollback)


@asynccontextmanager
async def sa_async_scoped(dsn: str) -> AsyncIterator[Way]:
    engine = create_async_engine(url(dsn, "psycopg"), poolclass=NullPool)
    s = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
    try:
        yield Way(s, lambda sql: s.execute(text(sql)), s.commit, s.rollback)
    finally:
        await s.remove()


Open = Callable[[str], AbstractAsyncContextManager[Way]]


def blocking(open_way: Open) -> Open:
    """In its block, tests may await calls on the connection, although these block the event loop,
    so that they are the same for all drivers."""

    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Way]:
        async with open_way(dsn) as way:
            may_block.set(True)
            try:
                yield way
            finally:
                may_block.set(False)

    return opened


SYNC: dict[str, Open] = {
    "psycopg": psycopg_sync,
    "psycopg autocommit": psycopg_dicts,
    "sqlalchemy Connection": sa_connection,
    "sqlalchemy Session": sa_session,
    "sqlalchemy Session over psycopg2": partial(sa_session, driver="psycopg2"),
    "sqlalchemy scoped_session": sa_scoped,
}
SYNC = {name: blocking(open_way) for name, open_way in SYNC.items()}
ASYNC: dict[str, Open] = {
    "psycopg async": psycopg_async,
    "asyncpg": asyncpg_connection,
    "asyncpg pool": asyncpg_pool,
    "sqlalchemy AsyncConnection over psycopg": partial(sa_async_connection, driver="psycopg"),
    "sqlalchemy AsyncConnection over asyncpg": partial(sa_async_connection, driver="asyncpg"),
    "sqlalchemy AsyncSession over psycopg": partial(sa_async_session, driver="psycopg"),
    "sqlalchemy AsyncSession over asyncpg": partial(sa_async_session, driver="asyncpg"),
    "sqlalchemy async_scoped_session": sa_async_scoped,
}
ALL = {**SYNC, **ASYNC}
