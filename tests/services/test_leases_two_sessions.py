"""The protocol's statements in two real sessions: what waits, what is refused, what rolls back.

Each was seen to fail with its protection taken out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from leasework import errors
from leasework.pg.sql import statement
from leasework.store.operation import Term
from tests.services.sessions import ELECTION, LEASE, MOMENT, Two, execute, tick, two_processes
from tests.support.wait import until_async

LONG = "select repeat('x', 1000) from generate_series(1, 20000)"
LEADER = "select node, token, seq from leasework.leader"
FENCE = "select token from leasework.fence where name = 'default'"


@pytest.fixture
async def two(migrated: str) -> AsyncIterator[Two]:
    async with two_processes(migrated) as two:
        yield two


# -- acquire, renew, resign ----------------------------------------------------------------------
@pytest.mark.parametrize(
    "stale",
    [{"node": uuid4()}, {"token": 0}, {"seq": 0}, {"timeline": 2}],
    ids=lambda stale: next(iter(stale)),
)
async def test_an_acquisition_that_names_another_row_than_there_is_changes_nothing(two, stale):
    await two.a.lead()
    seen = await two.b.see()
    before = await two.sql(LEADER)
    assert await two.b.acquire(seen._replace(**stale)) is None
    assert await two.sql(LEADER) == before
    assert await two.b.acquire(seen) == 2, "the row as it is may be taken"


async def test_of_two_candidates_at_once_one_wins(two):
    for number in range(1, 21):
        seen = await two.a.see()
        tokens = await asyncio.gather(two.a.acquire(seen), two.b.acquire(seen))
        assert sorted(tokens, key=bool) == [None, number]
        [[node, token, _]] = await two.sql(LEADER)
        assert (node, token) == ((two.a.id, two.b.id)[tokens.index(number)], number)
        assert await two.one(FENCE) == number
    assert await two.one("select count(*) from leasework.term") == 20


@pytest.mark.parametrize(("name", "held"), [("leader/acquire", "fence"), ("node/bury", "node")])
async def test_the_server_ends_a_wait_also_where_the_session_has_no_limit(two, name, held):
    """As behind a pooler."""
    term = await two.a.lead()
    seen, user = await two.b.see(), await two.session()
    await user.execute(f"select 1 from leasework.{held} for share".encode())
    assert await two.one("show lock_timeout") == "0"
    given = {
        "name": ELECTION, "node_id": two.b.id, "node_host": "h", "node_pid": 1, "now": None,
        "lease_seconds": LEASE, "node": two.a.id, "token": two.a.token,
        "seq": await two.one("select seq from leasework.node where id = %s", two.a.id),
        "term_leader": term.leader, "term_token": term.token,
        **{f"seen_{field}": value for field, value in seen._asdict().items()},
    }  # fmt: skip
    with pytest.raises(psycopg.errors.LockNotAvailable):
        await two.user.execute(statement(name, "leasework").encode(), given)


@pytest.mark.parametrize(
    "text",
    ["select 1 from leasework.fence for share", "update leasework.leader set seq = seq + 1"],
    ids=["a duty", "a heartbeat"],
)
async def test_an_answer_that_a_frozen_leader_does_not_read_delays_no_takeover(two, text):
    await two.a.lead()
    seen = await two.b.see()
    await two.unread(f"{text}; {LONG}")
    await two.shorten()
    with pytest.raises(errors.Conflict):
        await two.b.acquire(seen)

    async def acquired() -> bool:
        with suppress(errors.Conflict):
            return bool(await two.b.acquire(seen))
        return False

    await until_async(acquired)


@pytest.mark.parametrize(
    "text",
    [
        "set application_name = 'report'; select 1 from leasework.fence for share",
        "select 1 from leasework.fence",
    ],
    ids=["of an application", "that locks nothing"],
)
async def test_a_session_stays_whose_process_takes_its_time_to_read(two, text):
    await two.a.lead()
    seen = await two.b.see()
    stays = await two.unread(f"{text}; {LONG}")
    await two.shorten()
    duty = await two.session()
    await duty.execute("set application_name = 'leasework work'")
    await duty.execute("select 1 from leasework.fence for share")
    with pytest.raises(errors.Conflict):
        await two.b.acquire(seen)
    await duty.execute("select 1")
    gone = await two.unread("select 1 from leasework.fence for share; " + LONG)
    with pytest.raises(errors.Conflict):
        await two.b.acquire(seen)
    await until_async(lambda: two.ended(gone))
    assert not await two.ended(stays)


async def test_a_node_without_a_row_cannot_lead(two):
    seen = await two.a.see()
    await two.sql("delete from leasework.node where id = %s", two.a.id)
    assert await two.a.acquire(seen) is None


async def test_a_resignation_frees_the_leadership_at_once_and_tells_the_candidates(two):
    term = await two.a.lead()
    listener = await two.session()
    await listener.set_autocommit(True)
    await listener.execute("listen leasework")
    assert await two.a.store.resign(term, two.a.id, 5.0, None)
    notes = [note.payload async for note in listener.notifies(timeout=10, stop_after=1)]
    assert notes == ["e:default"]
    seen = await two.b.see()
    assert seen.node is None
    assert await two.b.acquire(seen) == 2


async def test_a_late_resignation_of_an_old_term_changes_nothing(two):
    old = await two.a.lead()
    await two.a.lead()
    before = await two.sql(LEADER)
    assert not await two.a.store.resign(old, two.a.id, 5.0, None)
    assert await two.sql(LEADER) == before


@pytest.mark.parametrize("successor", ["another node", "the same node"])
async def test_a_renewal_of_an_old_term_changes_nothing(two, successor):
    old = await two.a.lead()
    await (two.b if successor == "another node" else two.a).lead()
    before = await two.sql(LEADER)
    answer = await two.a.beat(old)
    assert answer.node_renewed
    assert answer.led == frozenset()
    assert await two.sql(LEADER) == before


async def test_a_renewal_by_a_node_that_is_gone_renews_no_leadership(two):
    term = await two.a.lead()
    await two.sql("delete from leasework.node where id = %s", two.a.id)
    before = await two.sql(LEADER)
    answer = await two.a.beat(term)
    assert not answer.node_renewed
    assert answer.led == frozenset()
    assert await two.sql(LEADER) == before


# -- the fence -----------------------------------------------------------------------------------
async def open_duty(two: Two) -> tuple[Term, Any]:
    """A duty of the present leader whose transaction has not ended."""
    term = await two.a.lead()
    await two.enqueue(run_in=0.001)
    duty = await two.session()
    [(staged, *_)] = await execute(duty, "job/stage", stage_params(term))
    assert staged == 1
    return term, duty


async def test_an_open_duty_holds_up_a_takeover_until_it_commits(two):
    _term, duty = await open_duty(two)
    takeover = asyncio.create_task(two.b.acquire(await two.b.see()))
    await two.waits()
    assert not takeover.done()
    assert await two.one(FENCE) == 1
    await duty.commit()
    assert await takeover == 2


async def test_a_duty_that_is_rolled_back_lets_the_takeover_go_on(two):
    _term, duty = await open_duty(two)
    takeover = asyncio.create_task(two.b.acquire(await two.b.see()))
    await two.waits()
    await duty.rollback()
    assert await takeover == 2


async def test_a_weaker_lock_on_the_fence_would_hold_up_nobody(two):
    """Why the duties take FOR SHARE: with FOR KEY SHARE a stale write commits after the
    takeover."""
    await two.a.lead()
    duty = await two.session()
    await duty.execute("select 1 from leasework.fence where name = 'default' for key share")
    async with asyncio.timeout(60):
        assert await two.b.acquire(await two.b.see()) == 2


async def test_an_open_duty_does_not_hold_up_a_renewal(two):
    term, _duty = await open_duty(two)
    async with asyncio.timeout(60):
        assert (await two.a.beat(term)).led == {ELECTION}


@pytest.mark.parametrize("how", ["missing", "ahead"])
async def test_without_a_fence_that_fits_the_whole_acquisition_is_rolled_back(two, how):
    await two.a.lead()
    seen = await two.b.see()
    before = await two.sql(LEADER)
    broken = {
        "missing": "delete from leasework.fence",
        "ahead": "update leasework.fence set token = 100",
    }
    await two.sql(broken[how])
    with pytest.raises(errors.QueryFailed, match="fence row"):
        await two.b.acquire(seen)
    assert await two.sql(LEADER) == before
    assert await two.one("select count(*) from leasework.term") == 1


@pytest.mark.parametrize("gone", [["leader"], ["fence"], ["leader", "fence"]], ids=" and ".join)
async def test_rows_deleted_by_hand_are_made_again_above_every_token_of_before(two, gone):
    for _ in range(3):
        await two.a.lead()
    for table in gone:
        await two.sql(f"delete from leasework.{table}")
    assert ELECTION not in (await two.b.beat()).leaders
    assert await two.b.store.ensure_election(ELECTION, LEASE), "a deletion is told"
    assert not await two.a.store.ensure_election(ELECTION, LEASE), "once"
    assert await two.b.acquire(await two.b.see()) == 4
    assert await two.one(FENCE) == 4


async def test_after_a_promotion_all_tokens_are_above_those_of_the_time_before(two):
    await two.a.lead()
    await two.enqueue()
    seen = await two.b.see()
    await two.sql("update leasework.incarnation set added = added + 1")
    assert await two.b.acquire(seen) is None, "the wait starts again on the new timeline"
    assert await two.b.acquire(await two.b.see()) == 2**32
    assert await two.b.acquire(await two.b.see()) == 2**32 + 1
    await two.sql("delete from leasework.node where id = %s", two.b.id)
    await two.b.join()
    assert two.b.token > 2**32
    [job] = await two.b.claim()
    assert job.claim_token > 2**32


# -- what an old term tries ----------------------------------------------------------------------
async def old_and_new(two: Two) -> tuple[Term, Term]:
    return await two.a.lead(), await two.b.lead()


async def test_an_old_term_fires_no_tick(two):
    await two.schedule("each")
    await old_and_new(two)
    assert await two.a.fire("each") == []
    assert await two.one("select count(*) from leasework.tick") == 0
    assert await two.one("select count(*) from leasework.job") == 0
    assert await two.b.fire("each") == [("each", MOMENT, "fired")]
    assert await two.one("select term from leasework.tick") == 2


async def test_an_old_term_stages_no_job(two):
    [job] = await two.enqueue(run_in=0.001)
    old, new = await old_and_new(two)
    assert (await two.a.store.stage(old, 100, None)).count == 0
    assert await two.state(job) == "scheduled"
    assert (await two.b.store.stage(new, 100, None)).count == 1
    assert await two.state(job) == "available"


async def test_an_old_term_buries_nobody(two):
    old, new = await old_and_new(two)
    seen = next(n.seen for n in (await two.a.beat()).nodes if n.id == two.b.id)
    assert await two.a.store.bury(old, two.b.id, seen.token, seen.seq) is None
    assert await two.b.store.bury(new, two.b.id, seen.token, seen.seq)


async def test_a_node_that_moved_since_it_was_observed_is_not_buried(two):
    term = await two.a.lead()
    seen = next(n.seen for n in (await two.a.beat()).nodes if n.id == two.b.id)
    await two.b.beat()
    assert await two.a.store.bury(term, two.b.id, seen.token, seen.seq) is None
    assert (await two.b.beat()).node_renewed


async def test_a_tick_that_two_sessions_fire_at_once_is_one_job(two):
    await two.schedule("each")
    two.b.term = await two.a.lead()
    first = await two.session()
    params = {"term_leader": ELECTION, "term_token": 1, "app": "default", "now": None}
    await execute(first, "schedule/fire", {**params, "plans": plans()})
    assert await two.b.fire("each") == [], "the row is held: it does not wait"
    await first.commit()
    assert await two.b.fire("each") == [], "the mark has moved"
    assert await two.one("select count(*) from leasework.tick") == 1
    assert await two.one("select count(*) from leasework.job") == 1


async def test_twenty_times_two_leaders_fire_the_same_tick_and_it_is_one_job(two):
    names = [f"s{number}" for number in range(20)]
    two.b.term = await two.a.lead()
    for name in names:
        await two.sql("delete from leasework.schedule")
        await two.schedule(name)
        written = await asyncio.gather(two.a.fire(name), two.b.fire(name))
        assert sorted(len(rows) for rows in written) == [0, 1]
    assert await two.one("select count(*) from leasework.job") == 20


async def test_a_tick_whose_ledger_entry_was_pruned_is_not_fired_again(two):
    """A process that was paused between its look and its act still has the old high-water mark."""
    await two.schedule("each")
    await two.a.lead()
    assert await two.a.fire("each")
    await two.sql("delete from leasework.tick")
    assert await two.a.fire("each", seen=None) == []
    assert await two.one("select count(*) from leasework.job") == 1


def plans() -> Jsonb:
    fired = tick("each")
    ticks = [{"at": str(MOMENT), "state": "fired", "job": str(fired.ticks[0].job)}]
    plan = {"name": "each", "release": "r", "seen": None, "ticks": ticks}
    return Jsonb([{**plan, "high_water": str(MOMENT), "next_at": str(fired.next_at)}])


def stage_params(term: Term) -> dict:
    return {"term_leader": term.leader, "term_token": term.token, "limit": 10, "now": None}
