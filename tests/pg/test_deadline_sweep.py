"""The sweep against itself, against kills and against completions; and what of it protects.

A breach stays single by three things: the row's lock, the state that the update names, and the
callback's key. Here each is taken out, alone and together with the others.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from leasework.config import Settings
from leasework.model.deadline import Callback, Promise
from leasework.model.job import ClaimedJob
from leasework.pg.schema import migrate
from leasework.pg.sql import statement
from leasework.store.reports import Reports
from leasework.store.store import Store
from tests.pg.bench import Bench
from tests.support.requests import job_request
from tests.support.wait import until_async

LONG = bool(os.environ.get("LEASEWORK_LONG"))
SWEEPERS, EXPIRED = 4, 300
ROUNDS = 20
RACES = 1000
LATER = datetime.now(UTC) + timedelta(days=1)
PROMISE = Promise(Callback("page", {"queue": "pages"}), seconds=60)

SWEEP = statement("deadline/sweep", "leasework")
SKIP = "for update skip locked"
GUARD = " and case d.state when 'armed' then true end\n    returning d.*, c.at"
KEY = "on conflict (key) do nothing"


def _without(*protections: str) -> str:
    """The sweep with these taken out. ``share``: the lock is weakened to FOR KEY SHARE."""
    text = SWEEP
    changes = {
        "lock": (SKIP, ""),
        "share": (SKIP, "for key share skip locked"),
        "guard": (GUARD, "\n    returning d.*, c.at"),
        "key": (KEY, "on conflict (key) do update set job_id = excluded.job_id"),
    }
    for name in protections:
        old, new = changes[name]
        assert text.count(old) == 1, name
        text = text.replace(old, new)
    return text


async def _expired(sql: Callable[..., Any], count: int) -> None:
    await sql("truncate leasework.deadline, leasework.job, leasework.job_key, leasework.event")
    await sql(
        """select count(*) from leasework.enqueue((select jsonb_agg(jsonb_build_object(
               'task', 't', 'payload', '{}'::jsonb, 'deadline', jsonb_build_object(
               'seconds', 60, 'on_breach', jsonb_build_object('task', 'page', 'queue', 'pages'))))
           from generate_series(1, %(count)s)))""",
        {"count": count},
    )


@asynccontextmanager
async def _session(dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    try:
        yield connection
    finally:
        await connection.close()


class Sweepers:
    """Some sessions that sweep at once, each batch a transaction that a kill may cut off."""

    def __init__(self, dsn: str, text: str, kills: bool, seed: int) -> None:
        self.dsn = dsn
        self.text = text.encode()
        self.rng = random.Random(seed)
        self.kills = 8 if kills else 0
        self.cut = 0
        self.pids: set[int] = set()

    async def run(self) -> None:
        together = asyncio.Barrier(SWEEPERS)
        await asyncio.wait_for(
            asyncio.gather(*[self._sweep_all(together) for _ in range(SWEEPERS)]), 60
        )

    async def _sweep_all(self, together: asyncio.Barrier) -> None:
        found, first = 1, True
        while found:
            async with _session(self.dsn) as connection:
                if first:
                    await together.wait()
                    first = False
                with suppress(psycopg.OperationalError):
                    while found:
                        found = await self._sweep(connection)
                    continue
                self.cut += 1
                found = 1

    async def _sweep(self, connection: psycopg.AsyncConnection[Any]) -> int:
        async with connection.transaction():
            cursor = await connection.execute(self.text, {"limit": 25, "now": LATER})
            rows = [row for row in await cursor.fetchall() if row[1] is not None]
            if self.kills and self.rng.random() < 0.3:
                self.kills -= 1
                async with _session(self.dsn) as killer:
                    pid = connection.info.backend_pid
                    await killer.execute("select pg_terminate_backend(%s, 5000)", [pid])
            await asyncio.sleep(self.rng.random() * 0.004)
        return len(rows)


async def _callbacks(sql: Callable[..., Any]) -> tuple[int, int]:
    """(callback jobs, breached deadlines)"""
    return (
        (await sql("select count(*) from leasework.job where task_name = 'page'"))[0][0],
        (await sql("select count(*) from leasework.deadline where state = 'breached'"))[0][0],
    )


async def _rounds(
    dsn: str, sql: Callable[..., Any], text: str, rounds: int, *, kills: bool = False
) -> tuple[list[int], int]:
    """Callback jobs of each round, and how many sweepers were cut off."""
    found, cut = [], 0
    for number in range(rounds):
        await _expired(sql, EXPIRED)
        sweepers = Sweepers(dsn, text, kills, number)
        await sweepers.run()
        called, breached = await _callbacks(sql)
        assert breached == EXPIRED
        found.append(called)
        cut += sweepers.cut
    return found, cut


@pytest.mark.timeout(300)
async def test_300_expired_deadlines_have_300_callbacks_whoever_is_killed(
    migrated: str, sql: Callable[..., Any]
):
    called, cut = await _rounds(migrated, sql, SWEEP, ROUNDS, kills=True)
    assert called == [EXPIRED] * ROUNDS
    assert cut >= ROUNDS, f"only {cut} sweepers were cut off"
    events = await sql("select count(*) from leasework.event where kind = 'deadline_breached'")
    assert events == [(EXPIRED,)]


@pytest.mark.timeout(300 if LONG else 120)
@pytest.mark.parametrize(
    "out", [("guard", "key"), ("lock", "key"), ("share", "key"), ("lock", "guard")]
)
async def test_each_protection_alone_suffices(
    migrated: str, sql: Callable[..., Any], out: tuple[str, ...]
):
    called, _ = await _rounds(migrated, sql, _without(*out), 20 if LONG else 2)
    assert called == [EXPIRED] * len(called)


@pytest.mark.parametrize("lock", ["lock", "share"])
async def test_with_none_of_them_the_same_breach_is_told_again(
    migrated: str, sql: Callable[..., Any], lock: str
):
    called, _ = await _rounds(migrated, sql, _without(lock, "guard", "key"), 3)
    assert max(called) > EXPIRED, "the measure cannot see what it is for"


@pytest.mark.parametrize("lock", ["as it is", "lock", "share"])
async def test_a_sweeper_that_hangs_holds_up_no_other(
    migrated: str, sql: Callable[..., Any], lock: str
):
    """This is what the row's lock is for: without it, or with FOR KEY SHARE, the second waits."""
    text = SWEEP if lock == "as it is" else _without(lock)
    await _expired(sql, 20)
    async with _session(migrated) as first, _session(migrated) as second:
        await second.execute("set lock_timeout = '300ms'")
        async with first.transaction():
            cursor = await first.execute(text.encode(), {"limit": 10, "now": LATER})
            mine = {row[1] for row in await cursor.fetchall()}
            if lock != "as it is":
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    await second.execute(text.encode(), {"limit": 10, "now": LATER})
                return
            cursor = await second.execute(text.encode(), {"limit": 100, "now": LATER})
            others = {row[1] for row in await cursor.fetchall()}
    assert len(mine) == len(others) == 10 and not mine & others
    assert await _callbacks(sql) == (20, 20)


# -- completions -----------------------------------------------------------------------------------
@asynccontextmanager
async def _racers(dsn: str) -> AsyncIterator[tuple[Bench, Store]]:
    await migrate.apply(Settings(dsn=dsn))
    stores = [Store(Settings(dsn=dsn), f"racer{n}") for n in (1, 2)]
    try:
        async with _session(dsn) as user:
            yield await Bench.make(stores[0], user), stores[1]
    finally:
        for store in stores:
            await store.close()


async def _running(bench: Bench, count: int) -> list[ClaimedJob]:
    """Running jobs; the deadline of the one numbered n is due n seconds from now."""
    jobs: list[ClaimedJob] = []
    for start in range(0, count, 250):
        requests = [
            (uuid4(), job_request(deadline=Promise(PROMISE.callback, seconds=n + 1.0)))
            for n in range(start, min(start + 250, count))
        ]
        await bench.store.enqueue(requests, 1 << 20, False, None)
        by_id = {job.id: job for job in await bench.claim(500)}
        jobs += [by_id[job_id] for job_id, _ in requests]
    return jobs


async def _complete(bench: Bench, job: ClaimedJob, number: int) -> None:
    """As the acker does; every fourth in a transaction of the user's."""
    if number % 4:
        assert job.id in (await bench.ack(job)).written
        return
    async with bench.user.transaction():
        await _complete_as_user(bench, job)


async def _complete_as_user(bench: Bench, job: ClaimedJob) -> None:
    params = {
        "job": job.id,
        "token": job.claim_token,
        "node": bench.node,
        "result": None,
        "idle_ms": 5000,
        "now": None,
    }
    await bench.user.execute(statement("user/complete", "leasework").encode(), params)


@pytest.mark.timeout(300)
async def test_a_completion_races_the_sweep_and_there_is_one_verdict(
    direct_dsn: str, sql: Callable[..., Any]
):
    races = RACES
    async with _racers(direct_dsn) as (bench, sweeper):
        jobs = await _running(bench, races)
        due = {
            row.id: row.due_at
            for row in await Reports(sweeper.pool).deadlines("armed", None, 10_000)
        }
        told: set[UUID] = set()
        delay = 0.0
        for number, job in enumerate(jobs):
            now = due[job.id]

            async def sweep(now: datetime = now, delay: float = delay) -> bool:
                await asyncio.sleep(max(0.0, delay))
                breaches = (await sweeper.sweep(10, now)).breaches
                told.update(breach.id for breach in breaches)
                return bool(breaches)

            async def complete(
                job: ClaimedJob = job, number: int = number, delay: float = delay
            ) -> None:
                await asyncio.sleep(max(0.0, -delay))
                await _complete(bench, job, number)

            swept, _ = await asyncio.gather(sweep(), complete())
            # whoever won starts later the next time: both come to win
            delay += 0.0002 if swept else -0.0002
    rows = await sql(
        """select d.state, d.id, (select count(*) from leasework.job j where j.task_name = 'page'
                                  and j.payload -> 'breach' ->> 'deadline' = d.id::text)
           from leasework.deadline d"""
    )
    assert len(rows) == races
    for state, deadline, callbacks in rows:
        assert (state, callbacks) == (("breached", 1) if deadline in told else ("met", 0))
    assert races // 20 < len(told) < races - races // 20, f"{len(told)} of {races}: hardly a race"


async def test_a_completion_that_waits_for_the_sweep_finds_its_verdict(
    direct_dsn: str, sql: Callable[..., Any]
):
    assert await _waits_and_finds(direct_dsn, sql) == "breached"


async def test_without_the_old_state_in_the_trigger_a_verdict_is_overwritten(
    direct_dsn: str, sql: Callable[..., Any]
):
    await migrate.apply(Settings(dsn=direct_dsn))
    [(text,)] = await sql(
        "select pg_get_functiondef(oid) from pg_proc where proname = 'deadline_judge'"
    )
    guard = "(d.state = 'waiting' or d.state = 'armed'\n        and "
    assert text.count(guard) == 1
    await sql(text.replace(guard, "(").replace("%", "%%"))
    assert await _waits_and_finds(direct_dsn, sql) == "met"


async def _waits_and_finds(dsn: str, sql: Callable[..., Any]) -> str:
    """A sweep is under way when the ack comes; the verdict that stands at the end."""
    async with _racers(dsn) as (bench, _), _session(dsn) as other:
        [job] = await _running(bench, 1)
        async with other.transaction():
            await other.execute(SWEEP.encode(), {"limit": 10, "now": LATER})
            ack = asyncio.create_task(bench.ack(job))
            await until_async(
                lambda: sql(
                    "select 1 from pg_stat_activity where wait_event_type = 'Lock' "
                    "and query like '%%job_done%%' and datname = current_database()"
                ),
                30,
                "the ack to wait for the sweep",
            )
        assert job.id in (await ack).written
    [(state,)] = await sql("select state from leasework.deadline")
    return str(state)


async def test_a_users_open_completion_is_passed_over_and_its_rollback_leaves_it_to_the_sweep(
    direct_dsn: str, sql: Callable[..., Any]
):
    async with _racers(direct_dsn) as (bench, sweeper):
        [job] = await _running(bench, 1)
        with pytest.raises(RuntimeError):
            async with bench.user.transaction():
                await _complete_as_user(bench, job)
                assert (await sweeper.sweep(10, LATER)).breaches == ()
                raise RuntimeError("rolled back")
        assert len((await sweeper.sweep(10, LATER)).breaches) == 1
    assert await _callbacks(sql) == (1, 1)


async def test_a_job_deleted_by_hand_does_not_keep_its_promise(
    direct_dsn: str, sql: Callable[..., Any]
):
    async with _racers(direct_dsn) as (bench, sweeper):
        [job] = await _running(bench, 1)
        await sql("delete from leasework.job")
        assert [b.id for b in (await sweeper.sweep(10, LATER)).breaches] == [job.id]
    [(facts,)] = await sql("select payload -> 'breach' ->> 'state' from leasework.job")
    assert facts == "gone"


async def test_jobs_without_a_deadline_pay_no_look_at_the_deadlines(
    direct_dsn: str, sql: Callable[..., Any]
):
    """Counted by the server: scans of the table and of its indexes, and calls of the function."""

    async def looks() -> Any:
        await sql("select pg_stat_clear_snapshot()")
        return await sql(
            """select coalesce(t.seq_scan, 0), coalesce(t.idx_scan, 0),
                      coalesce((select calls from pg_stat_user_functions
                                where funcname = 'deadline_judge'), 0)
               from pg_stat_user_tables t where t.relname = 'deadline'"""
        )

    await migrate.apply(Settings(dsn=direct_dsn))
    name = psycopg.conninfo.conninfo_to_dict(direct_dsn)["dbname"]
    await sql(f"alter database {name} set track_functions = 'all'")
    before = await looks()
    async with _racers(direct_dsn) as (bench, _):
        for _ in range(200):
            await bench.enqueue()
        jobs = await bench.claim(200)
        assert len((await bench.ack(*jobs)).written) == 200
    assert await looks() == before
    async with _racers(direct_dsn) as (bench, _):
        [job] = await _running(bench, 1)
        await bench.ack(job)

    async def looked() -> bool:
        return bool(await looks() != before)

    await until_async(looked, 30, "the statistics, which come when a session has ended")
