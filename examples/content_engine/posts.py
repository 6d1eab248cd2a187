"""The posts: a table that belongs to the service, in the same database as the jobs."""

import os
from datetime import datetime

import psycopg
from psycopg.rows import dict_row

TABLE = """
create table example_post (
    id           bigint generated always as identity primary key,
    body         text        not null,
    likes        integer     not null default 0,
    -- the moment of the sweep that chose it
    sweep        timestamptz,
    published_at timestamptz,
    remote_id    text
)
"""


async def connect() -> psycopg.AsyncConnection[dict]:
    """A connection. ``async with`` makes it one transaction, which commits at the end."""
    dsn = os.environ["LEASEWORK_DSN"]
    return await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row)


async def make(count: int) -> None:
    """Create a new table with ``count`` waiting posts."""
    async with await connect() as connection:
        await connection.execute("drop table if exists example_post")
        await connection.execute(TABLE)
        await connection.execute(
            "insert into example_post (body, likes) "
            "select 'post ' || n, mod(n * 37, 101) from generate_series(1, %s) n",
            [count],
        )


async def choose(
    connection: psycopg.AsyncConnection[dict], sweep: datetime, most: int
) -> list[int]:
    """Choose the oldest posts that no sweep has chosen yet, and return their ids."""
    cursor = await connection.execute(
        """
        update example_post set sweep = %s
        where id in (
            select id from example_post where sweep is null order by id limit %s for update
        )
        returning id
        """,
        [sweep, most],
    )
    return [row["id"] for row in await cursor.fetchall()]


async def body(post: int) -> str:
    async with await connect() as connection:
        cursor = await connection.execute("select body from example_post where id = %s", [post])
        return (await cursor.fetchone())["body"]


async def published(connection: psycopg.AsyncConnection[dict], post: int, remote_id: str) -> None:
    await connection.execute(
        "update example_post set published_at = now(), remote_id = %s where id = %s",
        [remote_id, post],
    )


async def top(count: int, days: int) -> list[dict]:
    async with await connect() as connection:
        cursor = await connection.execute(
            """
            select id, likes from example_post
            where published_at > now() - make_interval(days => %s)
            order by likes desc, id limit %s
            """,
            [days, count],
        )
        return await cursor.fetchall()


async def summary() -> dict:
    """Counts of posts, and their mean likes."""
    async with await connect() as connection:
        cursor = await connection.execute(
            """
            select count(*) as posts,
                   count(*) filter (where sweep is null) as waiting,
                   count(published_at) as published,
                   round(avg(likes), 1)::float8 as mean_likes
            from example_post
            """
        )
        return await cursor.fetchone()


async def drained() -> bool:
    counts = await summary()
    return counts["published"] == counts["posts"]


async def sweeps() -> dict[datetime, int]:
    """Number of posts that each sweep chose."""
    async with await connect() as connection:
        cursor = await connection.execute(
            "select sweep, count(*) as posts from example_post where sweep is not null group by 1"
        )
        return {row["sweep"]: row["posts"] for row in await cursor.fetchall()}
