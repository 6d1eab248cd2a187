"""Locks as people see them: the names of keys, and the leases."""

from __future__ import annotations

from leasework.config import LOCK_PREFIX
from tests.contract.world import ELECTION, LEASE, World, at


async def test_the_first_name_of_a_key_is_kept(world: World) -> None:
    store = world.a.store
    assert await store.note_lock("key", 7, "nightly", world.now) == "nightly"
    assert await world.b.store.note_lock("key", 7, "nightly", world.now) == "nightly"
    assert await store.note_lock("key", 7, "other", world.now) == "nightly"
    assert await store.note_lock("class", 7, "order", world.now) == "order"
    assert await store.note_lock("key", -(2**63), "low", world.now) == "low"


async def test_a_name_that_nobody_used_for_a_month_is_forgotten(world: World) -> None:
    store, day = world.a.store, 86400
    await store.note_lock("key", 1, "old", world.now)
    await store.note_lock("key", 2, "used", world.now)
    await store.note_lock("key", 2, "used", at(20 * day))
    await store.note_lock("key", 3, "new", at(31 * day))
    # both keys are free for another name, or not
    assert await store.note_lock("key", 1, "another", at(31 * day)) == "another"
    assert await store.note_lock("key", 2, "another", at(31 * day)) == "used"


async def test_a_lease_is_among_the_locks_while_somebody_holds_it(world: World) -> None:
    assert [row for row in await world.reports.locks(100) if row.locktype == "lease"] == []
    term = await world.a.lead()
    [row] = [row for row in await world.reports.locks(100) if row.locktype == "lease"]
    assert (row.name, row.token, row.granted) == (ELECTION, term.token, True)
    assert row.client == world.a.identity.worker_id and row.since == world.now
    assert (row.pid, row.query, row.job_id, row.lock_key) == (None,) * 4
    assert row.mode == "leader"
    assert await world.a.store.resign(term, world.a.id, 10.0, world.now)
    assert [row for row in await world.reports.locks(100) if row.locktype == "lease"] == []


async def test_a_lock_of_the_application_is_seen_with_who_waits_for_it(world: World) -> None:
    lock, store = f"{LOCK_PREFIX}billing", world.a.store
    await store.ensure_election(lock, LEASE)
    found = await store.place_bid(lock, world.a.id, False, 10.0, world.now)
    assert found
    token = await store.acquire(lock, world.a.identity, found.seen, LEASE, 10.0, world.now)
    await store.place_bid(lock, world.b.id, True, 10.0, world.now)
    rows = [row for row in await world.reports.locks(100) if row.locktype == "lease"]
    assert [(r.name, r.mode, r.granted, r.client, r.token) for r in rows] == [
        ("billing", "lock", True, world.a.identity.worker_id, token),
        ("billing", "lock", False, world.b.identity.worker_id, None),
    ]
