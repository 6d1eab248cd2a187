"""The queue of a lock: whose turn it is, and who is told."""

from __future__ import annotations

from datetime import timedelta

from leasework.store.operation import Term
from tests.contract.world import LEASE, Session, World

LOCK = "lock:billing"


async def look(session: Session, wait: bool = False):
    return await session.store.place_bid(LOCK, session.id, wait, 10.0, session.world.now)


async def take(session: Session) -> Term:
    found = await look(session)
    token = await session.store.acquire(
        LOCK, session.identity, found.seen, LEASE, 10.0, session.world.now
    )
    assert token
    return Term(LOCK, token)


async def test_a_lock_without_rows_is_not_seen_but_may_be_waited_for(world: World):
    assert await look(world.b, wait=True) is None
    await world.a.store.ensure_election(LOCK, LEASE)
    assert (await look(world.a)).first == world.b.id


async def test_places_are_in_the_order_in_which_they_were_taken_and_one_for_a_process(world: World):
    await world.a.store.ensure_election(LOCK, LEASE)
    assert (await look(world.b, wait=True)).first is None
    assert (await look(world.a, wait=True)).first == world.b.id
    assert (await look(world.b, wait=True)).first == world.b.id
    assert await world.b.store.drop_bid(LOCK, world.b.id)
    assert not await world.b.store.drop_bid(LOCK, world.b.id)
    assert (await look(world.b)).first == world.a.id


async def test_who_acquires_waits_no_more(world: World):
    await world.a.store.ensure_election(LOCK, LEASE)
    await look(world.b, wait=True)
    await take(world.b)
    assert (await look(world.a)).first is None


async def test_a_process_that_is_not_there_takes_no_place(world: World):
    await world.a.store.ensure_election(LOCK, LEASE)
    await look(world.c, wait=True)
    assert (await look(world.a)).first is None


async def test_a_place_goes_with_its_node(world: World):
    await world.a.store.ensure_election(LOCK, LEASE)
    await look(world.b, wait=True)
    await world.b.leave()
    assert (await look(world.a)).first is None


async def test_a_process_that_renews_nothing_is_passed_over_before_anybody_declares_it_dead(
    world: World,
):
    await world.a.store.ensure_election(LOCK, LEASE)
    await look(world.b, wait=True)
    world.now += timedelta(seconds=2 * LEASE - 1)
    assert (await look(world.a)).first == world.b.id
    world.now += timedelta(seconds=2)
    assert (await look(world.a, wait=True)).first is None
    await world.a.beat()
    assert (await look(world.a)).first == world.a.id


async def test_who_releases_tells_the_first_in_the_queue_and_nobody_if_nobody_waits(world: World):
    await world.a.store.ensure_election(LOCK, LEASE)
    await world.heard()
    assert await world.a.store.resign(await take(world.a), world.a.id, 10.0, world.now)
    assert await world.heard() == []
    term = await take(world.a)
    await look(world.b, wait=True)
    assert await world.a.store.resign(term, world.a.id, 10.0, world.now)
    seen = (await look(world.b)).seen
    assert await world.heard() == [f"l:{world.b.id} {seen.token} {seen.seq} {LOCK}"]
    assert seen.node is None


async def test_who_releases_passes_over_a_process_that_renews_nothing(world: World):
    await world.a.store.ensure_election(LOCK, LEASE)
    term = await take(world.a)
    for waits in (world.b, world.a):
        await look(waits, wait=True)
    world.now += timedelta(seconds=2 * LEASE + 1)
    await world.a.beat()
    await world.heard()
    assert await world.a.store.resign(term, world.a.id, 10.0, world.now)
    seen = (await look(world.a)).seen
    assert await world.heard() == [f"l:{world.a.id} {seen.token} {seen.seq} {LOCK}"]


async def test_of_a_lock_the_newest_term_is_kept_and_of_an_election_each(world: World):
    await world.a.store.ensure_election(LOCK, LEASE)
    terms = [await take(s) for s in (world.a, world.b, world.a)]
    kept = await world.reports.terms(LOCK, 10)
    assert [term.term for term in kept] == [terms[-1].token]
    await world.a.lead()
    await world.b.lead()
    assert len(await world.reports.terms("default", 10)) == 2
    assert [row.name for row in await world.reports.leaders(10)] == ["default"]


async def test_what_a_buried_node_held_is_free(world: World):
    """Its own lease was seen silent: nothing that stands on it is worth anything."""
    await world.a.store.ensure_election(LOCK, LEASE)
    term = await world.a.lead()
    held = await take(world.b)
    [seen] = [n.seen for n in (await world.a.beat()).nodes if n.id == world.b.id]
    await world.heard()
    assert await world.a.store.bury(term, world.b.id, seen.token, seen.seq)
    found = (await look(world.a)).seen
    assert (found.node, found.token) == (None, held.token)
    assert f"e:{LOCK}" in await world.heard()


async def test_the_list_of_locks_shows_who_holds_and_who_waits(world: World):
    await world.a.store.ensure_election(LOCK, LEASE)
    await take(world.a)
    await look(world.b, wait=True)
    rows = [
        row for row in await world.reports.locks(100) if (row.name, row.mode) == ("billing", "lock")
    ]
    assert [(row.granted, row.client) for row in rows] == [
        (True, world.a.identity.worker_id),
        (False, world.b.identity.worker_id),
    ]
