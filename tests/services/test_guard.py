"""The guard, step by step: its own clock is turned by hand, the database is real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from leasework import errors
from leasework.lease import messages
from leasework.model.lease import Phase
from leasework.tuning import Tuning
from tests.support.hand import TIMES, Database, W, a_database
from tests.support.wait import until_async


@pytest.fixture
async def database(migrated: str) -> AsyncIterator[Database]:
    async with a_database(migrated) as database:
        yield database


# -- taking over ---------------------------------------------------------------------------------
async def test_a_candidate_takes_over_when_it_has_seen_no_change_for_a_whole_wait(database):
    leader, other = await database.leader(), database.process(at=5.0)
    await other.step()
    await other.step()
    since = other.clock.at
    while other.clock.at + 0.5 < since + W:
        await other.step(0.5)
        assert not other.leads
    other.clock.at = since + W + TIMES.jitter
    await other.step()
    assert other.leads
    leader.clock.at += W - 0.1
    assert not leader.leads, "its own clock has ended it before"


async def test_a_duty_that_holds_the_fence_holds_up_a_takeover_no_longer_than_it_is_open(database):
    """Its process is dead, its transaction is not: an attempt waits in vain, and the next one need
    not wait for a whole lease again. What it names is compared with the row each time."""
    await database.leader()
    other = database.process()
    await other.step()
    async with database.connection.transaction():
        await database.sql("select 1 from leasework.fence where name = 'default' for share")
        await other.steps(round(W / 0.5) + 2, 0.5)
        assert other.events.count("renew_failed") == 1, "the next attempt is a renewal later"
        assert not other.leads

        async def given_up() -> bool:
            waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"
            return not await database.sql(waiting)

        await until_async(given_up, 10, "the server to end what nobody waits for")
    await other.step(TIMES.renew)
    assert other.leads


async def test_a_takeover_that_is_refused_is_not_tried_again_and_again(database):
    await database.leader()
    other = database.process()
    await other.step()
    await database.sql("update leasework.fence set token = 100")  # by hand: no term fits it
    await other.steps(round(W / 0.5) + 6, 0.5)
    assert other.events.count("service_failed") == 1 and not other.leads


async def test_a_fence_that_somebody_deleted_is_made_again_and_another_process_can_lead(database):
    leader, other = await database.leader(), database.process()
    await database.sql("delete from leasework.fence")
    await other.steps(2, 0.1)
    assert other.events == ["lease_remade"]
    await leader.guard.resign_all("stopped")
    await other.steps(2, TIMES.jitter)
    assert other.leads and leader.told[-1] is messages.Note.LEADS_NOT


async def test_a_renewal_starts_the_wait_again(database):
    leader, other = await database.leader(), database.process()
    await other.step()
    for _ in range(4 * round(W)):
        await leader.step(1.0)
        await other.step(1.0)
        assert leader.leads and not other.leads


@pytest.mark.parametrize("hours", [-1, 1])
async def test_what_the_databases_clock_says_is_nobodys_death(database, hours):
    leader, other = await database.leader(), database.process()
    await other.step()
    await database.sql(f"update leasework.leader set renewed_at = now() + interval '{hours} h'")
    await database.sql(f"update leasework.node set renewed_at = now() + interval '{hours} h'")
    for _ in range(5):
        await leader.step(1.0)
        await other.step(1.0)
    assert leader.leads and not other.leads
    assert other.guard.silent_nodes() == []


async def test_a_silent_node_is_seen_as_such_after_its_lease(database):
    one, two = database.process(), database.process()
    await one.step()
    await two.step()
    await two.step(W - 0.1)
    assert two.guard.silent_nodes() == []
    two.clock.at += 0.2
    assert [node.id for node in two.guard.silent_nodes()] == [one.id]
    await one.step(0.1)
    await two.step()
    assert two.guard.silent_nodes() == []


# -- losing --------------------------------------------------------------------------------------
async def test_an_answer_after_the_deadline_renews_nothing(database):
    """The row was renewed; but who knows what others saw meanwhile?"""
    leader = await database.leader()
    old = leader.id
    leader.store.delay = TIMES.trust + 0.1
    await leader.step()
    assert not leader.leads
    assert messages.Fenced in leader.told
    leader.store.delay = 0.0
    await leader.steps(3, 0.1)
    assert leader.id != old, "it comes back under another identity"
    assert leader.told.count(messages.Joined) == 2


async def test_a_node_whose_row_is_gone_fences_itself_and_comes_back_under_another_id(database):
    leader = await database.leader()
    old = leader.id
    await database.sql("delete from leasework.node")
    await leader.step(0.1)
    assert not leader.leads
    assert leader.told[-1] is messages.Fenced
    await leader.steps(4, 0.4)
    assert leader.id != old
    assert leader.leads, "nobody else wants it"
    [[node, token]] = await database.sql("select node, token from leasework.leader")
    assert (node, token) == (leader.id, 2)


async def test_a_fenced_node_does_not_come_back_before_its_work_has_ended(database):
    leader = await database.leader()
    old = leader.id
    leader.is_quiet = False
    await leader.step(TIMES.trust + 0.1)
    assert leader.told[-1] is messages.Fenced
    await leader.step(TIMES.grace - 0.05)
    assert leader.id == old
    assert messages.Note.GRACE_OVER not in leader.told
    await leader.step(0.1)
    assert messages.Note.GRACE_OVER in leader.told


async def test_the_grace_of_a_process_that_was_stopped_counts_from_when_it_goes_on(database):
    leader = await database.leader()
    leader.is_quiet = False
    await leader.step(10 * TIMES.lease)
    assert leader.told[-1] is messages.Fenced
    await leader.step(TIMES.grace - 0.05)
    assert messages.Note.GRACE_OVER not in leader.told


async def test_what_a_fenced_node_held_is_free_as_soon_as_nothing_runs_there(database):
    leader, other = await database.leader(), database.process()
    await other.step()
    old = leader.id
    await leader.steps(3, TIMES.trust + 0.1)
    assert await database.sql("select 1 from leasework.node where id = %s", old) == []
    assert await database.sql("select 1 from leasework.death where node = %s", old)


# -- a stuck loop --------------------------------------------------------------------------------
async def test_a_leader_whose_loop_is_stuck_resigns_and_does_not_stand_again_before_it_is_free(
    database,
):
    leader, other = await database.leader(), database.process()
    await other.step()
    node = leader.id
    leader.lag = TIMES.stuck + 0.1
    await leader.step(0.1)
    assert not leader.leads
    assert leader.guard.membership.lease.phase is Phase.HOLDER, "the node's lease is kept"
    for _ in range(4):
        await leader.step(1.0)
        assert not leader.leads
    await other.steps(2, TIMES.jitter)
    assert other.leads
    await other.guard.resign_all("it ends")
    leader.lag = 0.0
    await leader.steps(3, 1.0)
    assert leader.leads and leader.id == node
    assert leader.events.count("loop_stuck") == leader.events.count("loop_free") == 1


# -- leaving -------------------------------------------------------------------------------------
async def test_who_leaves_resigns_and_is_followed_at_once(database):
    leader, other = await database.leader(), database.process()
    await other.step()
    await leader.guard.resign_all("stopped")
    await leader.steps(3, 2 * TIMES.jitter)
    assert not leader.leads, "it does not stand again"
    await leader.guard.leave()
    await other.steps(2, TIMES.jitter)
    assert other.leads
    rows = await database.sql("select id from leasework.node")
    assert rows == [(other.id,)]


async def test_a_process_that_joined_too_late_joins_again_and_was_never_fenced(database):
    process = database.process()
    first = process.id
    process.store.register_delay = TIMES.trust + 0.1
    await process.step()
    assert process.id != first and process.told == []
    process.store.register_delay = 0.0
    await process.steps(3, 0.4)
    assert process.leads
    assert messages.Joined in process.told and messages.Fenced not in process.told
    assert "node_fenced" not in process.events


async def test_each_cancel_of_a_job_is_told_once(database, monkeypatch):
    """Also that of its next attempt, which comes before the node has said that it heard of one."""
    process = await database.leader()
    told: list[int] = []

    def send(message: messages.Message) -> None:
        if isinstance(message, messages.Signalled):
            told.extend(signal.token for signal in message.signals)

    monkeypatch.setattr(process, "send", send)
    for token in (1, 2, 2):
        await database.sql(
            "insert into leasework.signal (node, job_id, kind, claim_token)"
            " values (%s, %s, 'cancel', %s)"
            " on conflict (node, job_id, kind) do update set claim_token = excluded.claim_token",
            process.id,
            UUID(int=1),
            token,
        )
        await process.step(1.0)
    assert told == [1, 2]


async def test_a_surprise_in_the_host_does_not_end_the_guard(database):
    process = await database.leader()

    def surprise() -> Any:
        raise KeyError("surprise")

    process.info = surprise  # type: ignore[method-assign]
    await process.step(0.1)
    assert process.events[-1] == "service_failed"
    del process.info
    await process.step(0.1)
    assert process.leads


async def test_an_error_that_repeats_is_reported_at_once_and_then_once_a_minute(database):
    """After a failover to a standby, or with an old password, each try has the same answer."""
    process = await database.leader()
    error = "cannot execute UPDATE in a read-only transaction"

    def refuse() -> Any:
        raise errors.ServerError(error)

    def reports() -> int:
        return process.events.count("service_failed")

    process.info = refuse  # type: ignore[method-assign]
    first = process.clock.at
    while reports() < 2:
        await process.step(0.5)
    assert process.clock.at - first >= Tuning.repeat_seconds
    error = "another one"
    while reports() < 3:
        await process.step(0.5)
    assert process.clock.at - first < 2 * Tuning.repeat_seconds


async def test_outcomes_are_recorded_before_the_own_old_identity_is_certified(
    database, monkeypatch
):
    """After an outage: else its finished jobs would be taken for crashed ones."""
    process = await database.leader()
    unrecorded, old = 1, process.id

    async def away(now: Any) -> Any:
        raise errors.Unavailable("the database is away")

    def send(message: messages.Message) -> None:
        nonlocal unrecorded
        if message is messages.Note.ANSWERS:
            unrecorded = 0

    async def certified() -> bool:
        return not await database.sql("select 1 from leasework.node where id = %s", old)

    monkeypatch.setattr(process, "send", send)
    process.unrecorded = lambda: unrecorded
    with monkeypatch.context() as outage:
        outage.setattr(process.store, "database_now", away)
        await process.step(TIMES.trust + 0.1)
        await process.steps(12, 1.0)
        assert process.id != old and not await certified()
    await process.steps(4, 0.4)
    assert not unrecorded and await certified()


async def test_a_surprise_while_it_fences_itself_does_not_end_the_guard(database):
    process = await database.leader()
    old = process.id

    def surprise(message: messages.Message) -> None:
        if isinstance(message, messages.Fenced):
            raise KeyError("surprise")

    process.send = surprise  # type: ignore[method-assign]
    await process.step(TIMES.trust + 0.1)
    assert process.events[-1] == "service_failed"
    assert not process.leads
    await process.steps(4, 0.4)
    assert process.leads and process.id != old


async def test_no_wall_clock_is_asked_who_is_alive(database):
    """The process's own wall clock may say what it likes."""
    leader = await database.leader()

    def ancient() -> datetime:
        return datetime(1970, 1, 2, tzinfo=UTC)

    leader.clock.wall_now = ancient  # type: ignore[method-assign]
    await leader.steps(5, 1.0)
    assert leader.leads


# -- what is counted and told ----------------------------------------------------------------------
async def test_renewals_that_failed_are_told_with_the_next_that_does_not(database):
    query = "select (info ->> 'renew_failed')::int from leasework.node"
    leader = await database.leader()
    assert await database.sql(query) == [(0,)]
    leader.store.cut = True
    await leader.steps(3, 0.2)
    leader.store.cut = False
    await leader.step(0.2)
    assert await database.sql(query) == [(3,)]
    await leader.step(0.2)
    assert await database.sql(query) == [(3,)], "told once"
    leader.store.cut = True
    await leader.steps(2, 0.2)
    await leader.step(TIMES.lease)  # fenced meanwhile
    leader.store.cut = False
    await leader.steps(4, 0.4)
    total = (
        "select sum(n) from (select n from leasework.tally where metric = 'renew_failed' "
        "union all select (info ->> 'renew_failed')::int from leasework.node) x"
    )
    [(told,)] = await database.sql(total)
    assert told == 5


async def test_an_outage_is_logged_at_growing_intervals_and_once_at_its_end(database):
    leader = await database.leader()
    leader.store.cut = True
    await leader.steps(20, 0.2)
    assert leader.events.count("renew_failed") == 5, "the 1st, 2nd, 4th, 8th and 16th"
    assert "renew_works" not in leader.events
    leader.store.cut = False
    await leader.steps(3, 0.2)
    assert leader.events.count("renew_works") == 1
    leader.store.cut = True
    await leader.step(0.2)
    assert leader.events.count("renew_failed") == 6, "the first of the next one"


async def test_the_leader_says_that_the_clock_was_set_and_a_follower_does_not(database):
    leader, other = await database.leader(), database.process()
    await other.steps(2, 0.2)
    # its own clock stands still while the database's goes on: as if that were set forward
    before = "select extract(epoch from clock_timestamp())::float8"

    async def gone() -> bool:
        [(now,)] = await database.sql(before)
        return bool(now - began > 1.3)

    await leader.step(0.05)
    await other.step(0.05)
    leader.events.clear()
    [(began,)] = await database.sql(before)
    await until_async(gone, 30)
    await leader.step(0.05)
    await other.step(0.05)
    assert leader.events.count("clock_jumped") == 1
    assert "clock_jumped" not in other.events
