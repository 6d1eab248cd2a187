"""The Store's operations on nodes, deaths and elections."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from leasework.errors import QueryFailed
from leasework.store.nodes import NodeSeen
from leasework.store.operation import Term
from tests.contract.world import ELECTION, LEASE, World, at, identity


def others(nodes: tuple[NodeSeen, ...]) -> dict:
    return {node.id: node for node in nodes}


async def test_tokens_of_nodes_grow(world: World):
    assert world.a.token < world.b.token


async def test_an_id_that_has_a_row_cannot_register_again(world: World):
    with pytest.raises(QueryFailed):
        await world.a.store.register(world.b.identity, LEASE, world.now)


async def test_a_heartbeat_renews_and_shows_the_rows_as_they_were(world: World):
    before = others((await world.b.beat()).nodes)[world.a.id].seen
    first = await world.a.beat()
    assert first.node_renewed and others(first.nodes)[world.a.id].seen.seq == before.seq
    after = others((await world.b.beat()).nodes)[world.a.id]
    assert after.seen == before._replace(seq=before.seq + 1)
    assert after.app == "default" and after.seen.lease_seconds == LEASE


async def test_a_heartbeat_with_a_wrong_token_renews_nothing(world: World):
    term = await world.a.lead()
    world.a.token += 1
    answer = await world.a.beat(term)
    assert not answer.node_renewed and not answer.led


async def test_a_heartbeat_renews_what_it_leads_and_nothing_else(world: World):
    term = await world.a.lead()
    seen = await world.b.see()
    assert (await world.a.beat(term)).led == {ELECTION}
    assert await world.b.see() == seen._replace(seq=seen.seq + 1)
    assert not (await world.a.beat(Term(ELECTION, term.token + 1))).led
    assert not (await world.b.beat(term)).led
    assert await world.b.see() == seen._replace(seq=seen.seq + 1)


async def test_releases_are_numbered_in_the_order_in_which_they_were_seen(world: World):
    world.c.identity = identity(3, "r2")
    await world.c.join()
    nodes = others((await world.a.beat()).nodes)
    assert nodes[world.a.id].release_number == nodes[world.b.id].release_number
    assert nodes[world.c.id].release_number > nodes[world.a.id].release_number > 0


async def test_a_free_election_is_acquired_and_only_as_it_was_seen(world: World):
    seen = await world.a.see()
    assert seen.node is None
    assert await world.a.acquire(seen)
    assert await world.b.acquire(seen) is None
    held = await world.b.see()
    assert (held.node, held.token) == (world.a.id, world.a.term.token)


async def test_a_takeover_names_what_was_seen_and_gets_a_higher_token(world: World):
    term = await world.a.lead()
    seen = await world.b.see()
    await world.a.beat(term)
    assert await world.b.acquire(seen) is None, "it was renewed meanwhile"
    assert await world.b.acquire(await world.b.see())
    assert world.b.term.token > term.token
    assert not (await world.a.beat(term)).led


@pytest.mark.parametrize("change", [{"token": 7}, {"seq": 7}, {"timeline": 7}, {"node": None}])
async def test_every_part_of_what_was_seen_counts(world: World, change: dict):
    await world.a.lead()
    seen = await world.b.see()
    assert await world.b.acquire(seen._replace(**change)) is None
    assert await world.b.acquire(seen)


async def test_a_node_without_a_row_acquires_nothing(world: World):
    seen = await world.a.see()
    world.c.token = 1
    assert await world.c.acquire(seen) is None


async def test_a_missing_fence_refuses_the_acquisition_whole(world: World):
    seen = await world.a.see()
    await world.forget("fence")
    with pytest.raises(QueryFailed):
        await world.a.acquire(seen)
    assert ELECTION not in (await world.a.beat()).leaders, "an election without a fence is not seen"


async def test_an_election_that_lost_a_row_is_made_again_above_its_terms(world: World):
    term = await world.a.lead()
    assert not await world.b.store.ensure_election(ELECTION, LEASE)
    await world.forget("fence")
    assert await world.b.store.ensure_election(ELECTION, LEASE)
    assert await world.b.acquire(await world.b.see())
    assert world.b.term.token > term.token


async def test_a_row_that_was_deleted_is_made_again_as_its_last_holders_who_goes_on(world: World):
    """It may believe in it still: others see it held, and wait."""
    term = await world.a.lead()
    before = await world.b.see()
    await world.forget("leader")
    assert await world.b.store.ensure_election(ELECTION, LEASE - 1)
    again = await world.b.see()
    assert (again.node, again.token) == (world.a.id, term.token)
    assert again.seq != before.seq and again.lease_seconds == LEASE, "the longest that is known"
    assert (await world.a.beat(term)).led == {ELECTION}
    assert await world.b.acquire(again) is None, "it was renewed"
    await world.forget("leader")
    await world.b.store.ensure_election(ELECTION, LEASE)
    assert (await world.b.see()).seq not in (again.seq, again.seq + 1), "each time another one"


async def test_a_row_whose_holder_nobody_knows_is_held_by_somebody(world: World):
    """Its terms were deleted too; the fence says that there were some."""
    await world.a.lead()
    await world.forget("leader")
    await world.forget("term")
    assert await world.b.store.ensure_election(ELECTION, LEASE)
    seen = await world.b.see()
    assert seen.node == UUID(int=0) and seen.token == 1
    assert await world.b.acquire(seen) and world.b.term.token == 2


async def test_a_new_election_was_not_there_before(world: World):
    assert not await world.a.store.ensure_election("another", LEASE)


async def test_who_resigns_names_its_term_and_others_are_told(world: World):
    term = await world.a.lead()
    await world.heard()
    store = world.a.store
    assert not await store.resign(term, world.b.id, 10.0, world.now)
    assert not await store.resign(Term(ELECTION, term.token + 1), world.a.id, 10.0, world.now)
    assert await store.resign(term, world.a.id, 10.0, world.now)
    assert not await store.resign(term, world.a.id, 10.0, world.now)
    assert (await world.b.see()).node is None
    assert await world.heard() == [f"e:{ELECTION}"]


async def test_terms_are_listed_newest_first(world: World):
    await world.a.lead()
    world.now = at(1)
    await world.b.lead()
    terms = await world.reports.terms(ELECTION, 10)
    assert [term.term for term in terms] == [world.b.term.token, world.a.term.token]
    assert [term.holder for term in terms] == [s.identity.worker_id for s in (world.b, world.a)]
    assert await world.reports.terms("another", 10) == []


# -- deaths ---------------------------------------------------------------------------------------
async def test_a_silent_node_is_buried_by_what_was_seen_of_it(world: World):
    term = await world.a.lead()
    seen = others((await world.a.beat()).nodes)[world.b.id].seen
    await world.b.beat()
    bury = world.a.store.bury
    assert await bury(term, world.b.id, seen.token, seen.seq) is None, "it moved"
    assert await bury(term, world.b.id, seen.token + 1, seen.seq + 1) is None
    worker = await bury(term, world.b.id, seen.token, seen.seq + 1)
    assert worker == world.b.identity.worker_id
    assert not (await world.b.beat()).node_renewed
    assert await world.a.store.deaths(10) == [(world.b.id, worker)]


async def test_whoever_was_replaced_buries_nobody(world: World):
    old = await world.a.lead()
    await world.b.lead()
    world.c.token = 0
    await world.c.join()
    seen = others((await world.a.beat()).nodes)[world.c.id].seen
    assert await world.a.store.bury(old, world.c.id, seen.token, seen.seq) is None
    assert await world.b.store.bury(world.b.term, world.c.id, seen.token, seen.seq)


async def test_leaving_names_the_token_and_leaves_a_death(world: World):
    store = world.b.store
    assert not await store.leave(world.b.id, world.b.token + 1)
    assert await store.leave(world.b.id, world.b.token)
    assert not await store.leave(world.b.id, world.b.token)
    assert await store.deaths(10) == [(world.b.id, world.b.identity.worker_id)]


async def test_leaving_frees_a_lease_whose_resignation_got_no_answer(world: World):
    await world.b.lead()
    await world.heard()
    assert await world.b.store.leave(world.b.id, world.b.token)
    assert (await world.a.see()).node is None
    assert await world.heard() == [f"e:{ELECTION}"]


async def test_a_node_that_leaves_while_it_holds_a_lease_keeps_it_and_is_no_crash(world: World):
    term = await world.a.lead()
    seen = others((await world.a.beat()).nodes)[world.b.id].seen
    assert not await world.b.store.leave(world.b.id, world.b.token, holds=True)
    assert await world.a.store.bury(term, world.b.id, seen.token, seen.seq) == ""
    assert await world.reports.died(60.0, 10, world.now) == []
    assert await world.a.store.deaths(10) == [(world.b.id, world.b.identity.worker_id)]


async def test_a_parent_certifies_no_crash_of_a_process_that_left(world: World):
    await world.b.beat(info={"assigned": str(world.b.id)})
    assert not await world.b.store.leave(world.b.id, world.b.token, holds=True)
    assert await world.a.store.certify(world.b.id, 10.0, process=True)
    assert await world.reports.died(60.0, 10, world.now) == []


async def test_a_certificate_ends_a_node_and_what_it_leads(world: World):
    await world.b.lead()
    await world.heard()
    store = world.a.store
    assert await store.certify(world.b.id, 10.0) == world.b.identity.worker_id
    assert (await world.a.see()).node is None
    assert sorted(await world.heard()) == ["d:", f"e:{ELECTION}"]
    assert await store.certify(world.b.id, 10.0) is None
    assert [node for node, _ in await store.deaths(10)] == [world.b.id]


async def test_a_certificate_of_a_process_ends_the_identities_it_took_since(world: World):
    await world.b.beat(info={"assigned": str(world.c.id)})
    assert await world.a.store.certify(world.c.id, 10.0) is None
    assert (await world.b.beat(info={"assigned": str(world.c.id)})).node_renewed
    worker = await world.a.store.certify(world.c.id, 10.0, process=True)
    assert worker == world.b.identity.worker_id
    assert not (await world.b.beat()).node_renewed


async def test_a_death_is_settled_only_when_its_jobs_are_free(world: World):
    await world.claimed(world.b)
    await world.b.leave()
    assert await world.a.store.settle([world.b.id]) == 0
    assert len(await world.a.rescue(world.b)) == 1
    assert await world.a.store.settle([world.b.id]) == 1
    assert await world.a.store.settle([world.b.id]) == 0
    assert await world.a.store.deaths(10) == []


async def test_a_death_that_is_not_over_keeps_no_other_from_being_settled(world: World):
    await world.claimed(world.b)
    await world.b.leave()
    await world.c.join()
    await world.c.leave()
    both = sorted([world.b.id, world.c.id])
    assert {node for node, _ in await world.a.store.deaths(10)} == set(both)
    first = await world.a.store.deaths(1)
    assert await world.a.store.deaths(1, 1) != first == (await world.a.store.deaths(2))[:1]
    assert await world.a.store.deaths(10, 2) == []
    assert await world.a.store.settle(both) == 1
    assert [node for node, _ in await world.a.store.deaths(10)] == [world.b.id]
    assert await world.a.store.settle(both) == 0


async def test_a_halted_node_hears_of_it_with_its_renewal_and_is_shown_to_work_nothing(
    world: World,
):
    assert not (await world.a.beat()).halted
    assert await world.b.store.halt(world.a.id, True) == world.a.identity.worker_id
    assert [(await s.beat()).halted for s in (world.a, world.b, world.a)] == [True, False, True]
    shown = {row.id: row for row in await world.reports.nodes(10)}
    assert shown[world.a.id].halted and not shown[world.a.id].executes
    assert not shown[world.b.id].halted and shown[world.b.id].executes
    world.a.token += 1
    assert not (await world.a.beat()).halted, "only with a renewal"
    world.a.token -= 1
    assert await world.b.store.halt(world.a.id, False)
    assert not (await world.a.beat()).halted
    assert await world.b.store.halt(world.c.id, True) is None, "it is gone"


async def test_a_node_that_goes_on_under_another_identity_stays_halted(world: World):
    world.c.identity = structs.replace(identity(3), halted=True)
    await world.c.join()
    assert (await world.c.beat()).halted


async def test_one_node_alone_is_asked_to_drain(world: World):
    async def heard(session: Any) -> list[tuple[str, int]]:
        return [(s.kind, s.token) for s in (await session.beat(info={"drains": True})).signals]

    assert await heard(world.a) == await heard(world.b) == []
    assert [n for n, _ in await world.b.store.drain("", world.a.id)] == [world.a.id]
    assert (await heard(world.a), await heard(world.b)) == ([("drain", 1)], [])
    assert len(await world.b.store.drain("default")) == 2, "and then all of them"
    await world.b.store.drain("", world.a.id)
    assert await heard(world.a) == await heard(world.b) == [("drain", 0)]


async def test_workers_that_say_so_are_asked_to_drain_and_hear_of_it_once(world: World):
    await world.a.beat(info={"drains": True})
    await world.b.beat(info={"drains": False})
    await world.heard()
    assert await world.b.store.drain("another") == []
    assert await world.b.store.drain("default") == [(world.a.id, world.a.identity.worker_id)]
    assert await world.heard() == [f"c:{world.a.id}"]
    [signal] = (await world.a.beat()).signals
    assert signal.kind == "drain"
    assert (await world.a.beat(heard=[signal])).signals == ()
    assert (await world.b.beat()).signals == ()


async def test_a_new_epoch_needs_the_node_and_its_token(world: World):
    store = world.a.store
    assert await store.new_epoch(world.a.id, world.a.token + 1, 2) is None
    assert await store.new_epoch(world.a.id, world.a.token, 2) == 2
    assert await store.new_epoch(world.a.id, world.a.token, 3) == 3
    assert await store.new_epoch(world.a.id, world.a.token, 2) == 3, "late, or once more"
    assert await store.new_epoch(world.c.id, 1, 2) is None


async def test_only_a_queue_on_which_somebody_sleeps_is_woken(world: World):
    await world.heard()
    await world.enqueue()
    assert await world.heard() == []
    await world.b.store.set_sleeping(world.b.id, ["default", "other"])
    await world.enqueue(2)
    await world.enqueue(queue="nobody")
    await world.enqueue(run_in=60)
    assert await world.heard() == ["q:default"]
    await world.b.store.set_sleeping(world.b.id, [])
    await world.enqueue()
    assert await world.heard() == []
