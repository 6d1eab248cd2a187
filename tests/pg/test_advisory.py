"""``app.advisory_lock`` on connections of leasework's own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from leasework import App
from leasework.errors import ConfigError, LockNotAcquired, LostLock, SchemaMissing, UnsafeServer
from leasework.model.lock_key import lock_key
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]
TARGETS: list[Any] = ["nightly", 0x52494F4C, ("order", 42), (-7, -42), ("order", 2**40)]
HOLDERS = "select pid from pg_locks where locktype = 'advisory' and granted"
WAITERS = "select pid from pg_locks where locktype = 'advisory' and not granted"


@pytest.fixture
async def direct(migrated: str) -> AsyncIterator[App]:
    """An application that is not behind a pooler."""
    app = App(migrated)
    yield app
    await app.close()


@pytest.fixture
async def rival(migrated: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """What hand-written code would hold or try."""
    async with await psycopg.AsyncConnection.connect(migrated, autocommit=True) as connection:
        yield connection


async def tries(rival: Any, function: str, target: Any) -> bool:
    key = lock_key(target, wide=True)
    numbers = [key.key] if key.key is not None else [key.class_id, key.object_id]
    marks = ", ".join(["%s::bigint" if key.key is not None else "%s::int"] * len(numbers))
    cursor = await rival.execute(f"select {function}({marks})".encode(), numbers)
    got = (await cursor.fetchone())[0]
    if got:
        await rival.execute("select pg_advisory_unlock_all()")
    return bool(got)


# -- exclusion -------------------------------------------------------------------------------------
@pytest.mark.parametrize("scope", ["transaction", "session"])
async def test_one_holds_it_and_hand_written_code_with_the_same_key_does_not(
    direct: App, rival: Any, sql: Sql, scope: str
) -> None:
    for target in TARGETS:
        await excludes(direct, rival, sql, scope, target)


async def excludes(direct: App, rival: Any, sql: Sql, scope: str, target: Any) -> None:
    async with direct.advisory_lock(target, scope=scope, wide=True) as lock:
        assert lock.held and await sql(HOLDERS) == [(lock.pid,)]
        await lock.verify()
        assert not await tries(rival, "pg_try_advisory_lock", target)
        with pytest.raises(LockNotAcquired, match="another session holds"):
            async with direct.advisory_lock(target, scope=scope, wide=True):
                pass
    assert not lock.held and lock.pid is None
    assert await tries(rival, "pg_try_advisory_lock", target)
    assert await sql(HOLDERS) == []


@pytest.mark.parametrize("scope", ["transaction", "session"])
async def test_shared_holders_keep_out_only_one_that_is_not(
    direct: App, rival: Any, sql: Sql, scope: str
) -> None:
    for target in TARGETS:
        await shares(direct, rival, sql, scope, target)


async def shares(direct: App, rival: Any, sql: Sql, scope: str, target: Any) -> None:
    options = {"scope": scope, "wide": True}
    async with direct.advisory_lock(target, shared=True, **options) as first:
        async with direct.advisory_lock(target, shared=True, timeout=5, **options) as second:
            assert len(await sql(HOLDERS)) == 2 and first.held and second.held
            await second.verify()
            assert not await direct.advisory_lock(target, **options).acquire()
        assert not await tries(rival, "pg_try_advisory_lock", target)
        assert await tries(rival, "pg_try_advisory_lock_shared", target)
    async with direct.advisory_lock(target, **options):
        pass


async def test_of_many_tries_at_once_one_gets_it(direct: App) -> None:
    locks = [direct.advisory_lock("one", scope="session") for _ in range(20)]
    got = await asyncio.gather(*(lock.acquire() for lock in locks))
    assert sum(got) == 1
    for lock in locks:
        await lock.release()


# -- waiting ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("scope", ["transaction", "session"])
async def test_a_wait_ends_with_the_lock_when_it_becomes_free(
    direct: App, sql: Sql, scope: str
) -> None:
    for target in ("nightly", ("order", 1)):
        for shared in (False, True):
            await waits(direct, sql, scope, target, shared)


async def waits(direct: App, sql: Sql, scope: str, target: Any, shared: bool) -> None:
    async with direct.advisory_lock(target, scope=scope):
        waiting = direct.advisory_lock(target, scope=scope, shared=shared, timeout=30)
        task = asyncio.create_task(waiting.acquire())
        await until_async(lambda: sql(WAITERS), 30)
        assert not task.done() and not waiting.held
    assert await asyncio.wait_for(task, 30) and waiting.held
    await waiting.release()


@pytest.mark.parametrize("scope", ["transaction", "session"])
async def test_a_wait_has_an_end_and_leaves_nothing_behind(
    direct: App, sql: Sql, scope: str
) -> None:
    async with direct.advisory_lock("nightly", scope=scope):
        with pytest.raises(LockNotAcquired, match=r"nightly for 0\.3 s"):
            async with direct.advisory_lock("nightly", scope=scope, timeout=0.3):
                pass
        await until_async(lambda: none_left(sql, WAITERS), 30)
        assert len(await sql(HOLDERS)) == 1


async def test_a_wait_that_is_cancelled_leaves_no_waiter_and_no_holder(
    direct: App, sql: Sql
) -> None:
    held = direct.advisory_lock("nightly", scope="session")
    assert await held.acquire()
    task = asyncio.create_task(
        direct.advisory_lock("nightly", scope="session", timeout=60).acquire()
    )
    await until_async(lambda: sql(WAITERS), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_async(lambda: none_left(sql, WAITERS), 30)
    await held.release()
    await until_async(lambda: none_left(sql, HOLDERS), 30)


async def none_left(sql: Sql, query: str) -> bool:
    return not await sql(query)


# -- what people see -------------------------------------------------------------------------------
async def test_holders_and_waiters_are_seen_with_name_client_query_and_job(
    direct: App, rival: Any, sql: Sql
) -> None:
    job = uuid4()
    async with direct.advisory_lock("nightly", scope="session", job=job) as lock:
        waiting = asyncio.create_task(direct.advisory_lock("nightly", timeout=30).acquire())
        await until_async(lambda: sql(WAITERS), 30)
        await rival.execute("begin")
        await rival.execute("select pg_advisory_xact_lock(1380536140), pg_advisory_xact_lock(5)")
        await rival.execute("select pg_advisory_xact_lock(-1, -2)")
        # anybody may call itself like this
        await rival.execute(f"set application_name = 'leasework lock {'-' * 36}'")
        rows = {(row.name, row.granted): row for row in await (await direct.inspect()).locks()}
        holder, waiter = rows["nightly", True], rows["nightly", False]
        assert (holder.pid, holder.job_id, holder.mode) == (lock.pid, job, "ExclusiveLock")
        assert (holder.locktype, holder.objsubid) == ("advisory", 1)
        assert holder.lock_key == lock_key("nightly").key
        assert (holder.classid, holder.objid) == lock_key("nightly").in_pg_locks[:2]
        assert holder.waitstart is None and holder.since and holder.client
        assert holder.application_name == f"leasework lock {job}"
        assert waiter.waitstart and waiter.state == "active"
        assert "advisory_lock" in waiter.query and waiter.pid != lock.pid
        assert rows["RIOL", True].lock_key == 1380536140
        assert rows["RIOL", True].state == "idle in transaction"
        assert rows[None, True].lock_key == 5
        pair = rows["-1:-2", True]
        assert (pair.objsubid, pair.lock_key) == (2, None)
        await rival.execute("commit")
    assert await waiting


async def test_the_names_keys_are_the_same_in_sql(sql: Sql) -> None:
    for name in ("nightly", "order", "", "käse", "x" * 200, "billing:order", "a", "b", "c", "d"):
        [(key, kind)] = await sql(
            "select leasework.lock_key(%(n)s), leasework.lock_class(%(n)s)", {"n": name}
        )
        if name:
            assert key == lock_key(name).key
            assert kind == lock_key((name, 1)).class_id
    [(letters, none)] = await sql(
        "select leasework.lock_letters(1380536140), leasework.lock_letters(-1)"
    )
    assert (letters, none) == ("RIOL", None)


async def test_two_names_with_one_key_are_refused(direct: App, sql: Sql) -> None:
    await sql(
        "insert into leasework.lock_name (kind, key, name) values ('class', %s, 'invoice')",
        [lock_key(("order", 1)).class_id],
    )
    with pytest.raises(ConfigError, match="'order' and 'invoice' have the same key"):
        await direct.advisory_lock(("order", 1)).acquire()


# -- refusals --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "options, words",
    [
        ({"scope": "forever"}, "scope must be"),
        ({"scope": "session", "on": object()}, "cannot be used with on="),
        ({"timeout": 0}, "timeout must be more than"),
        ({"timeout": True}, "timeout must be more than"),
        ({"timeout": 1e9}, "timeout must be more than"),
        ({"job": "x"}, "job must be"),
    ],
)
async def test_options_that_do_not_fit_are_refused(
    direct: App, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        direct.advisory_lock("nightly", **options)


async def test_one_object_is_one_acquisition_at_a_time(direct: App) -> None:
    lock = direct.advisory_lock("nightly", scope="session")
    with pytest.raises(LostLock, match="never acquired"):
        await lock.verify()
    for _ in range(2):
        assert await lock.acquire()
        with pytest.raises(ConfigError, match="already acquired"):
            await lock.acquire()
        await lock.release()
        await lock.release()
    with pytest.raises(LostLock):
        await lock.verify()


async def test_without_the_schema_the_reason_is_said(direct_dsn: str) -> None:
    app = App(direct_dsn)
    for target in ("nightly", 7):
        with pytest.raises(SchemaMissing, match="schema apply"):
            await app.advisory_lock(target).acquire()
    await app.close()


@pytest.fixture
async def does_nothing(migrated: str) -> str:
    """A server whose functions say that they took the lock, as some engines do."""
    async with await psycopg.AsyncConnection.connect(migrated, autocommit=True) as c:
        await c.execute("set allow_system_table_mods = on")
        for name in ("pg_try_advisory_lock", "pg_try_advisory_xact_lock"):
            await c.execute(f"alter function {name}(bigint) rename to real_{name}".encode())
            await c.execute(
                f"create function pg_catalog.{name}(bigint) returns boolean"
                " language sql as 'select true'".encode()
            )
    return migrated


@pytest.mark.parametrize("scope", ["transaction", "session"])
async def test_an_engine_whose_functions_do_nothing_is_refused(
    does_nothing: str, sql: Sql, scope: str
) -> None:
    app = App(does_nothing)
    with pytest.raises(UnsafeServer, match="do nothing"):
        await app.advisory_lock("nightly", scope=scope).acquire()
    async with await psycopg.AsyncConnection.connect(does_nothing) as mine:
        with pytest.raises(UnsafeServer, match="do nothing"):
            await app.advisory_lock("nightly", on=mine).acquire()
    await app.close()


# -- threads, processes ----------------------------------------------------------------------------
async def test_threads_exclude_each_other(direct: App, sql: Sql) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        with direct.sync.advisory_lock("nightly", scope="session", timeout=30) as lock:
            assert lock.held and lock.pid and not lock.lost.is_set()
            lock.verify()
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    threads = [asyncio.create_task(asyncio.to_thread(work)) for _ in range(5)]
    await asyncio.gather(*threads)
    assert most == [1] * 5 and await none_left(sql, HOLDERS)


async def test_a_thread_is_told_that_it_is_taken_and_a_loop_that_it_would_stand_still(
    direct: App,
) -> None:
    def work() -> None:
        with pytest.raises(LockNotAcquired), direct.sync.advisory_lock("nightly"):
            pass

    async with direct.advisory_lock("nightly"):
        await asyncio.to_thread(work)
    with pytest.raises(ConfigError, match="inside an event loop"):
        direct.sync.advisory_lock("nightly").acquire()


async def test_a_thread_is_told_that_its_lock_is_lost(direct: App, sql: Sql) -> None:
    holding: list[Any] = []

    def work() -> str | None:
        lock = direct.sync.advisory_lock("nightly", scope="session")
        with pytest.raises(LostLock), lock:
            holding.append(lock)
            assert lock.lost.wait(30) and not lock.held
        return lock.why_lost

    task = asyncio.create_task(asyncio.to_thread(work))
    await until_async(lambda: holding, 30)
    await sql("select pg_terminate_backend(%s)", [holding[0].pid])
    assert await asyncio.wait_for(task, 60)


async def test_a_fork_does_not_hold_its_parents_lock_and_cannot_give_it_away(
    direct: App, sql: Sql
) -> None:
    async with direct.advisory_lock("nightly", scope="session") as lock:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with suppress(LostLock):
                    lock.verify().send(None)
                    os._exit(4)  # it asked on its parent's connection
                coroutine = lock.release()
                try:
                    coroutine.send(None)
                except StopIteration:
                    code = 3 if lock.held else 0
            finally:
                os._exit(code)
        waited: list[int] = []
        thread = threading.Thread(target=lambda: waited.append(os.waitpid(child, 0)[1]))
        thread.start()
        await until_async(lambda: waited, 30)
        assert os.waitstatus_to_exitcode(waited[0]) == 0
        await lock.verify()
        assert lock.held and await sql(HOLDERS) == [(lock.pid,)]
