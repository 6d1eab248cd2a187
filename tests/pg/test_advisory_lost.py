"""The lock that lies: what holds it says that it does, and the database shows no holder.

Two observers look ten times a second for the whole of each test: one at what the lock says, one at
pg_locks. From the moment at which pg_locks shows no holder, ``lost`` may take three seconds.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import psycopg
import pytest

from leasework import App
from leasework.app.advisory import TRUST_SECONDS, AdvisoryLock
from leasework.errors import LostLock, UnsafeServer
from leasework.model.lock_key import key_of_name
from leasework.pg.sql import statement
from tests.pg.drivers import asyncpg_arguments
from tests.support.pgbouncer import PgBouncer
from tests.support.relay import Relay
from tests.support.wait import BUSY_SECONDS, forever, stall, until_async

Sql = Callable[..., Awaitable[list[Any]]]
NAME = "content-engine"
HOLDERS = (
    "select count(*) from leasework.locks where name = %s and locktype = 'advisory' and granted"
)
LONGEST_LIE_SECONDS = 3.0 + BUSY_SECONDS


@dataclass
class Observer:
    """What was seen: (moment, the database's holders, what the application believes)."""

    sql: Sql
    believes: Callable[[], bool]
    seen: list[tuple[float, int, bool]] = field(default_factory=list)

    async def look(self) -> None:
        while True:
            [(holders,)] = await self.sql(HOLDERS, [NAME])
            self.seen.append((time.monotonic(), holders, self.believes()))
            await asyncio.sleep(0.1)

    @property
    def lie_seconds(self) -> float:
        """The longest time for which it was believed and pg_locks showed no holder."""
        longest, since = 0.0, None
        for moment, holders, believed in self.seen:
            if holders or not believed:
                since = None
                continue
            since = moment if since is None else since
            longest = max(longest, moment - since)
        return longest


@asynccontextmanager
async def observed(sql: Sql, believes: Callable[[], bool]) -> AsyncIterator[Observer]:
    await sql(
        "insert into leasework.lock_name (kind, key, name) values ('key', %s, %s)"
        " on conflict do nothing",
        [key_of_name(NAME), NAME],
    )
    observer = Observer(sql, believes)
    task = asyncio.create_task(observer.look())
    try:
        await until_async(lambda: observer.seen, 30)
        yield observer
    finally:
        task.cancel()


@pytest.fixture
async def open_app(migrated: str) -> AsyncIterator[Callable[[str], App]]:
    apps: list[App] = []

    def make(dsn: str) -> App:
        apps.append(App(dsn, call_timeout=2.0))
        return apps[-1]

    yield make
    for app in apps:
        await app.close()


async def lost(lock: AdvisoryLock) -> float:
    """Wait for it; the moment."""
    async with asyncio.timeout(30):
        await lock.lost.wait()
    assert not lock.held
    return time.monotonic()


@pytest.mark.parametrize("scope", ["session", "transaction"])
async def test_a_terminated_backend_is_noticed(
    open_app: Any, migrated: str, sql: Sql, scope: str
) -> None:
    lock = open_app(migrated).advisory_lock(NAME, scope=scope)
    async with observed(sql, lambda: lock.held) as observer:
        assert await lock.acquire()
        await until_async(lambda: (1, True) in [seen[1:] for seen in observer.seen], 30)
        await sql("select pg_terminate_backend(%s)", [lock.pid])
        await lost(lock)
        await until_async(lambda: observer.seen[-1][1:] == (0, False), 30)
    print(f"{scope}: believed without a holder for {observer.lie_seconds:.2f} s at most")
    assert observer.lie_seconds <= LONGEST_LIE_SECONDS
    with pytest.raises(LostLock, match="no longer holds the advisory lock"):
        await lock.release()
    [event] = await until_async(
        lambda: sql("select fields from leasework.events where kind = 'lock_lost'"), 30
    )
    assert event[0]["name"] == NAME and event[0]["scope"] == scope and event[0]["why"]


@pytest.mark.parametrize("server_notices", [True, False])
async def test_a_socket_that_falls_silent_is_noticed(
    open_app: Any, migrated: str, sql: Sql, server_notices: bool
) -> None:
    """The server ends its side (what its keepalives do later), or holds the lock for ever. Over a
    real TCP link, with the server's own keepalives: scripts/lock-partition."""
    with Relay(migrated) as link:
        lock = open_app(link.dsn).advisory_lock(NAME, scope="session")
        async with observed(sql, lambda: lock.held) as observer:
            assert await lock.acquire()
            await until_async(lambda: observer.seen[-1][1:] == (1, True), 30)
            link.silence()
            silent_at = time.monotonic()
            if server_notices:
                link.drop_server_side()
            took = await lost(lock) - silent_at
            await until_async(lambda: not observer.seen[-1][2], 30)
            holders = observer.seen[-1][1]
        assert holders == (0 if server_notices else 1), "what the test is about"
        print(
            f"silent: lost after {took:.2f} s; believed without a holder for "
            f"{observer.lie_seconds:.2f} s at most"
        )
        assert took <= LONGEST_LIE_SECONDS and observer.lie_seconds <= LONGEST_LIE_SECONDS
        with pytest.raises(LostLock, match="did not answer"):
            await lock.release()


async def test_a_lock_is_believed_for_less_time_than_the_servers_keepalives_take() -> None:
    """So a silent link is given up before the server can give the lock to anybody else."""
    text = statement("lock/prepare", "leasework")
    found = {name: int(value) for name, value in re.findall(r"tcp_(\w+)', '(\d+)'", text)}
    keepalives = found["keepalives_idle"] + found["keepalives_interval"] * found["keepalives_count"]
    assert keepalives > TRUST_SECONDS and found["user_timeout"] / 1000 > TRUST_SECONDS


async def test_what_pg_locks_does_not_show_any_more_is_lost_although_the_connection_works(
    open_app: Any, migrated: str, sql: Sql
) -> None:
    """Somebody calls pg_advisory_unlock_all on the connection, as a pool would at its return."""
    lock = open_app(migrated).advisory_lock(NAME, scope="session")
    async with observed(sql, lambda: lock.held) as observer:
        assert await lock.acquire()
        await until_async(lambda: observer.seen[-1][1:] == (1, True), 30)
        connection = lock._session._session.connection
        await connection.execute("select pg_advisory_unlock_all()")
        await lost(lock)
        await until_async(lambda: not observer.seen[-1][2], 30)
    assert "pg_locks does not show it" in str(lock.why_lost)
    assert observer.lie_seconds <= LONGEST_LIE_SECONDS


async def test_another_session_in_the_place_of_ours_is_seen_by_its_pid_and_its_mark(
    open_app: Any, migrated: str, sql: Sql
) -> None:
    """As behind a pooler that hides itself: the lock is there, in somebody else's hands."""
    lock = open_app(migrated).advisory_lock(NAME, scope="session")
    assert await lock.acquire()
    connection = lock._session._session.connection
    await connection.execute("select set_config('leasework_lock.nonce', 'of another', false)")
    await lost(lock)
    with pytest.raises(LostLock):
        await lock.release()


# -- the body --------------------------------------------------------------------------------------
async def test_the_body_is_cancelled_and_the_reason_raised(
    open_app: Any, migrated: str, sql: Sql
) -> None:
    ended: list[str] = []

    async def work() -> None:
        async with open_app(migrated).advisory_lock(NAME, scope="session") as lock:
            await sql("select pg_terminate_backend(%s)", [lock.pid])
            try:
                await forever()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

    task = asyncio.create_task(work())
    with pytest.raises(LostLock, match=NAME):
        await asyncio.wait_for(task, 30)
    assert ended == ["cancelled"] and task.cancelling() == 0


async def test_a_callback_that_fails_is_an_event_and_keeps_nobody_from_being_told(
    open_app: Any, migrated: str, sql: Sql
) -> None:
    told: list[str] = []

    class Mute(Exception):
        def __str__(self) -> str:
            raise LookupError("no words")

    def broken(why: str) -> None:
        raise LookupError("no pager")

    def mute(why: str) -> None:
        raise Mute

    async def work() -> None:
        async with open_app(migrated).advisory_lock(NAME, scope="session") as lock:
            lock.on_lost(broken)
            lock.on_lost(mute)
            lock.on_lost(told.append)
            await sql("select pg_terminate_backend(%s)", [lock.pid])
            await forever()

    with pytest.raises(LostLock, match=NAME):
        await asyncio.wait_for(work(), 30)
    assert len(told) == 1
    query = "select fields ->> 'error' from leasework.events where kind = 'callback_failed'"

    async def both() -> Any:
        errors = await sql(query)
        return {error for (error,) in errors} if len(errors) == 2 else None

    errors = await until_async(both, 30)
    assert errors == {"LookupError: no pager", "Mute: (its str() raised LookupError)"}


async def test_a_release_while_the_lock_is_being_verified_is_no_loss(
    open_app: Any, migrated: str, sql: Sql
) -> None:
    """A statement that the server cancels would end the transaction whose lock it is."""
    await sql(
        "set allow_system_table_mods = on; alter view pg_locks rename to real_locks;"
        " create view pg_catalog.pg_locks as with pause as materialized (select pg_sleep(0.3))"
        " select shown.* from pause, real_locks shown"
    )
    lock = open_app(migrated).advisory_lock(NAME, scope="transaction")
    assert await lock.acquire()
    asks = "select 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
    await until_async(lambda: sql(asks, [lock.pid]), 30)
    await lock.release()
    assert lock.why_lost is None
    await until_async(lambda: nobody(sql), 30)


async def test_a_body_that_does_not_want_to_be_cancelled_looks_by_itself(
    open_app: Any, migrated: str, sql: Sql
) -> None:
    reasons: list[str] = []
    with pytest.raises(LostLock):
        async with open_app(migrated).advisory_lock(NAME, scope="session", cancel=False) as lock:
            lock.on_lost(reasons.append)
            await sql("select pg_terminate_backend(%s)", [lock.pid])
            with pytest.raises(LostLock):
                await lock.verify()
            await lock.lost.wait()
    assert len(reasons) == 1


async def test_an_error_of_the_body_is_not_covered_up(
    open_app: Any, migrated: str, sql: Sql
) -> None:
    with pytest.raises(LookupError):
        async with open_app(migrated).advisory_lock(NAME, scope="session", cancel=False) as lock:
            await sql("select pg_terminate_backend(%s)", [lock.pid])
            await lock.lost.wait()
            raise LookupError
    # and one who cancels the body from outside gets what he asked for
    inside = asyncio.Event()

    async def work() -> None:
        async with open_app(migrated).advisory_lock(NAME, scope="session"):
            inside.set()
            await forever()

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_async(lambda: nobody(sql), 30)


async def nobody(sql: Sql) -> bool:
    return await sql(HOLDERS, [NAME]) == [(0,)]


async def test_a_loop_that_stood_still_does_not_count_as_holding(
    open_app: Any, migrated: str, sql: Sql
) -> None:
    """Nothing could be asked meanwhile: the answer of before is too old, until the next one."""
    lock = open_app(migrated).advisory_lock(NAME, scope="session")
    assert await lock.acquire()
    stall(TRUST_SECONDS + 0.1)
    assert not lock.held and not lock.lost.is_set()
    await lock.verify()
    assert lock.held
    await lock.release()


# -- poolers ---------------------------------------------------------------------------------------
async def test_behind_a_pooler_a_lock_of_the_session_is_refused_and_nobody_holds_anything(
    open_app: Any, migrated: str, pgbouncer: PgBouncer, sql: Sql
) -> None:
    lock = open_app(pgbouncer.dsn).advisory_lock(NAME, scope="session")
    async with observed(sql, lambda: lock.held) as observer:
        with pytest.raises(UnsafeServer, match="through a pooler") as refused:
            await lock.acquire()
        assert "server process" in str(refused.value)
    assert {seen[1:] for seen in observer.seen} == {(0, False)}


async def test_behind_a_pooler_two_clients_hold_the_same_hand_made_lock(
    migrated: str, pgbouncer: PgBouncer
) -> None:
    """What is refused above: both get it, since both speak through the same server process."""
    async with (
        await psycopg.AsyncConnection.connect(pgbouncer.dsn, autocommit=True) as blue,
        await psycopg.AsyncConnection.connect(pgbouncer.dsn, autocommit=True) as green,
    ):
        got = [await taken(c) for c in (blue, green)]
    assert got == [True, True]


async def taken(connection: Any) -> bool:
    connection.prepare_threshold = None
    cursor = await connection.execute("select pg_try_advisory_lock(42)")
    return bool((await cursor.fetchone())[0])


async def test_behind_a_pooler_a_lock_of_a_transaction_is_held_and_verified(
    open_app: Any, migrated: str, pgbouncer: PgBouncer, sql: Sql
) -> None:
    app = open_app(pgbouncer.dsn)
    lock = app.advisory_lock(NAME)
    assert await lock.acquire()
    first = lock._confirmed_at
    # longer than an idle transaction of our other connections may last
    await until_async(lambda: lock._confirmed_at > first + 2, 30)
    assert lock.held and await sql(HOLDERS, [NAME]) == [(1,)]
    assert not await app.advisory_lock(NAME).acquire()
    await sql("select pg_terminate_backend(%s)", [lock.pid])
    with pytest.raises(LostLock):
        await lock.verify()
    assert await sql(HOLDERS, [NAME]) == [(0,)]
    with pytest.raises(LostLock):
        await lock.release()


async def test_a_pooler_may_give_the_transaction_another_server_process(
    open_app: Any, migrated: str
) -> None:
    pgbouncer = PgBouncer(migrated, {"server_round_robin": 1})
    app = open_app(pgbouncer.dsn)
    try:
        async with AsyncExitStack() as stack:
            for _ in range(3):  # so many server processes has the pooler then
                connecting = psycopg.AsyncConnection.connect(pgbouncer.dsn, prepare_threshold=None)
                connection = await stack.enter_async_context(await connecting)
                await connection.execute("select 1")
        for number in range(4):
            lock = app.advisory_lock(f"{NAME} {number}")
            assert await lock.acquire()
            await lock.release()
    finally:
        await app.close()
        pgbouncer.close()


# -- the story -------------------------------------------------------------------------------------
async def test_a_pool_takes_the_lock_away_while_the_application_says_that_it_leads(
    open_app: Any, migrated: str, sql: Sql
) -> None:
    """The likely cause of three days without scheduled tasks: asyncpg's pool runs
    pg_advisory_unlock_all when a connection comes back. ``held`` of ours says the truth."""
    lock = open_app(migrated).advisory_lock(NAME, scope="session")
    async with asyncpg.create_pool(min_size=1, **asyncpg_arguments(migrated)) as pool:
        async with pool.acquire() as connection:  # as hand-made elections do it
            active = await connection.fetchval("select pg_try_advisory_lock($1)", key_of_name(NAME))
            assert await sql(HOLDERS_BY_KEY, [key_of_name(NAME)]) == [(1,)]
        assert active and await sql(HOLDERS_BY_KEY, [key_of_name(NAME)]) == [(0,)]
        async with observed(sql, lambda: lock.held) as observer:
            # so another one leads as well
            assert active and await lock.acquire()
            for _ in range(10):  # and whatever the pools of the application do
                async with pool.acquire() as connection:
                    await connection.fetchval("select pg_advisory_unlock_all()")
            await until_async(lambda: len(observer.seen) > 15, 30)
        assert {seen[1:] for seen in observer.seen[-5:]} == {(1, True)}
        assert observer.lie_seconds == 0
        await lock.release()


HOLDERS_BY_KEY = "select count(*) from leasework.locks where lock_key = %s and granted"
