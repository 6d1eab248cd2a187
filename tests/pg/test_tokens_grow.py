"""Tokens never fall: on servers that do not tell their timeline, over moves, and by hand."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from leasework_lab.server import find_programs

from leasework import App
from leasework.cli.root import root
from leasework.config import Settings
from leasework.errors import LeaseworkError
from leasework.pg.schema import migrate
from leasework.store.nodes import NodeIdentity
from leasework.watch.finding import Finding
from tests.pg.bench import Bench
from tests.support.managed import REFUSALS, ordinary_login, withhold
from tests.support.wait import until

LIFT = 1 << 32
Given = dict[str, int]
"""Kind of a token -> the newest one."""


@pytest.fixture
def ordinary(direct_dsn: str) -> Iterator[str]:
    with ordinary_login(direct_dsn) as dsn:
        yield dsn


@asynccontextmanager
async def at_work(dsn: str) -> AsyncIterator[Bench]:
    """A store of its own, and a node that is registered there."""
    app = App(dsn)
    try:
        async with await psycopg.AsyncConnection.connect(dsn) as user:
            yield await Bench.make(await app.store(), user)
    finally:
        await app.close()


async def beat(bench: Bench, *watched: str) -> Any:
    return await bench.store.heartbeat(bench.node, 0, (), watched, {}, (), 30.0, None)


async def led(bench: Bench, name: str) -> int:
    """Whoever holds it is taken to be silent for long enough."""
    await bench.store.ensure_election(name, 10.0)
    seen = (await beat(bench, name)).leaders[name]
    me = NodeIdentity(bench.node, "a", "r", "host", 1, "0", True, ("t",), {"default": 1})
    term = await bench.store.acquire(name, me, seen, 10.0, 30.0, None)
    assert term is not None
    return term


async def given(bench: Bench) -> Given:
    """A new token of each kind; the job completes."""
    job = await bench.claimed()
    await bench.ack(job)
    leader, lock = await led(bench, "shop"), await led(bench, "lock:report")
    return {"claim": job.claim_token, "leader": leader, "lock": lock}


def grown(before: Given, after: Given) -> bool:
    return all(after[kind] > before[kind] for kind in before)


async def timeline(bench: Bench) -> int:
    await led(bench, "shop")
    seen = (await beat(bench, "shop")).leaders["shop"]
    return int(seen.timeline)


async def doctor(dsn: str) -> Finding | None:
    """What the doctor says of tokens."""
    app = App(dsn)
    told = await app.diagnose()
    await app.close()
    return next((finding for finding in told if finding.kind == "tokens"), None)


async def cli(dsn: str, *arguments: str) -> str:
    return await asyncio.to_thread(_cli, dsn, *arguments)


def _cli(dsn: str, *arguments: str) -> str:
    environ = {"LEASEWORK_DSN": dsn, "NO_COLOR": "1"}
    done = CliRunner().invoke(root, arguments, prog_name="leasework", env=environ)
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done.stdout


@pytest.mark.parametrize("how", REFUSALS)
async def test_a_server_that_does_not_tell_its_timeline_gives_tokens_all_the_same(
    direct_dsn: str, ordinary: str, how: str
) -> None:
    withhold(direct_dsn, how)
    await migrate.apply(Settings(dsn=ordinary))
    async with at_work(ordinary) as bench:
        first, second = await given(bench), await given(bench)
        assert all(0 < token < LIFT for token in first.values()) and grown(first, second)
    told = await doctor(ordinary)
    assert told and told.level == "note" and "lift-tokens" in told.do


@pytest.mark.parametrize("how", REFUSALS)
async def test_a_server_that_stops_telling_it_is_noticed_by_the_next_heartbeat(
    direct_dsn: str, ordinary: str, how: str
) -> None:
    await migrate.apply(Settings(dsn=ordinary))
    async with at_work(ordinary) as bench:
        before = await given(bench)
        withhold(direct_dsn, how)
        await bench.enqueue()
    app = App(ordinary)  # whose sessions have planned nothing yet
    again = Bench(await app.store(), bench.user, bench.node)
    try:
        with pytest.raises(LeaseworkError):
            await again.claim()
        await beat(again)
        assert len(await again.claim()) == 1
        assert grown(before, await given(again))
    finally:
        await app.close()


async def test_a_claim_is_no_subtransaction(migrated: str) -> None:
    """An exception block around each claim's question would be one."""
    async with await psycopg.AsyncConnection.connect(migrated) as connection:
        cursor = await connection.execute("select prosrc from pg_proc where proname = 'timeline'")
        assert "exception" not in str(await cursor.fetchone())


async def test_a_promotion_lifts_tokens_and_a_lower_timeline_does_not_let_them_fall(
    migrated: str, sql: Callable[..., Any]
) -> None:
    """The server's timelines: 1 and 3; on a new server 1, 2 and 3; and 1 on yet another."""
    numbers, before = [], {"claim": 0, "leader": 0, "lock": 0}
    async with at_work(migrated) as bench:
        for number in (1, 3, 1, 2, 3, 1):
            for name in ("timeline", "server_timeline"):
                [(text,)] = await sql(
                    f"select pg_get_functiondef(oid) from pg_proc where proname = '{name}' "
                    "and pronamespace = 'leasework'::regnamespace"
                )
                start = text.index("('x' ||") if "('x' ||" in text else text.index("(/**/")
                end = text.index(";", start)
                await sql(text[:start] + f"(/**/{number})" + text[end:])
            # before any heartbeat has noted it, too
            job = await bench.claimed()
            assert job.claim_token > before["claim"], number
            after = await given(bench)
            assert grown(before, after), number
            before = after
            numbers.append(await timeline(bench))
    assert numbers == [1, 3, 4, 5, 6, 7]


async def test_a_person_can_lift_all_tokens_while_nodes_run(migrated: str) -> None:
    async with at_work(migrated) as bench:
        before = await given(bench)
        assert "timeline 2" in await cli(migrated, "schema", "lift-tokens")
        after = await given(bench)
        assert grown(before, after) and all(token >= LIFT for token in after.values())
        assert "timeline 3" in await cli(migrated, "schema", "lift-tokens")
        assert grown(after, await given(bench))


async def test_a_deleted_row_of_the_incarnation_is_made_again_above_all_tokens(
    migrated: str, sql: Callable[..., Any]
) -> None:
    async with at_work(migrated) as bench:
        await cli(migrated, "schema", "lift-tokens")
        before = await given(bench)
        await sql("delete from leasework.incarnation")
        await bench.enqueue()
        with pytest.raises(LeaseworkError, match="incarnation is missing"):
            await bench.claim()
        told = await doctor(migrated)
        assert told and told.level == "wrong"
        await beat(bench)
        assert len(await bench.claim()) == 1 and grown(before, await given(bench))
        assert await doctor(migrated) is None


async def test_data_that_were_copied_without_their_sequences_are_told(
    migrated: str, sql: Callable[..., Any]
) -> None:
    async with at_work(migrated) as bench:
        before = await given(bench)
        await sql("alter sequence leasework.token_seq restart")
        told = await doctor(migrated)
        assert told and told.level == "wrong"
        await cli(migrated, *told.do.split()[1:])
        assert await doctor(migrated) is None
        assert grown(before, await given(bench))


async def test_sequences_that_logical_replication_did_not_copy_continue_after_their_rows(
    migrated: str, sql: Callable[..., Any]
) -> None:
    async with at_work(migrated) as bench:
        early = [await bench.enqueue() for _ in range(3)]
        event = "insert into leasework.event (kind, level) values ('test', 'info') returning id"
        release = "insert into leasework.release (app, name) values ('a', %s) returning number"
        [(last,)] = [await sql(event) for _ in range(3)][-1]
        [(older,)] = await sql(release, ["one"])
        for name in ("seat_seq", "event_id_seq", "release_number_seq"):
            await sql(f"alter sequence leasework.{name} restart")
        told = await doctor(migrated)
        assert told and told.level == "wrong"
        await cli(migrated, *told.do.split()[1:])
        assert await doctor(migrated) is None
        late = await bench.enqueue()
        assert [job.id for job in await bench.claim()] == [*early, late]
        assert (await sql(event))[0][0] == last + 1
        assert (await sql(release, ["two"]))[0][0] == older + 1
        # what is ahead of its rows stays
        await sql("select setval('leasework.event_id_seq', 1000)")
        await cli(migrated, "schema", "lift-tokens")
        assert (await sql(event))[0][0] == 1001


def promote(server: Any) -> None:
    """As a failover does it: the server comes up as a standby of itself."""
    server.data_dir.joinpath("pgdata", "standby.signal").touch()
    server.restart()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("select pg_promote()")

        def promoted() -> bool:
            return connection.execute("select pg_is_in_recovery()").fetchone() == (False,)

        until(promoted, 60, "the server to be promoted")


def copy(source: str, target: str) -> None:
    """As people do it, with PostgreSQL's own programs."""
    programs = find_programs("15")[0]
    dump = [programs / "pg_dump", source]
    restore = [programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", target]
    dumped = subprocess.run(dump, check=True, capture_output=True, timeout=120)
    subprocess.run(restore, input=dumped.stdout, check=True, capture_output=True, timeout=120)


async def test_tokens_grow_over_a_dump_of_a_promoted_server_and_its_restore_into_a_fresh_one(
    own_postgres: Callable[..., Any],
) -> None:
    old, fresh = own_postgres("15"), own_postgres("15")
    await migrate.apply(Settings(dsn=old.dsn))
    async with at_work(old.dsn) as bench:
        first = await given(bench)
    promote(old)
    promote(old)
    async with at_work(old.dsn) as bench:
        before = await given(bench)
        assert await timeline(bench) == 3 and before["claim"] > 2 * LIFT and grown(first, before)
        await bench.enqueue()
    await asyncio.to_thread(copy, old.dsn, fresh.dsn)
    assert await migrate.verify(Settings(dsn=fresh.dsn)) == []
    ran: list[int] = []
    app = App(fresh.dsn)

    @app.task(name="t")
    async def task() -> None:
        ran.append(1)

    async with at_work(fresh.dsn) as bench:
        [waiting] = await bench.claim()
        assert waiting.claim_token > before["claim"], "the first claim, before any other look"
        await bench.ack(waiting)
        after = await given(bench)
        assert grown(before, after)
    async with app.node():
        job = await task.enqueue()
        await job.wait(60)
    assert ran == [1]
    promote(fresh)
    async with at_work(fresh.dsn) as bench:
        assert grown(after, await given(bench))
    assert await doctor(fresh.dsn) is None
