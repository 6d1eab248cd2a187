"""The Store's operations on schedules and their ledger."""

from __future__ import annotations

from datetime import datetime

import pytest
from msgspec import structs

from leasework.model.former import redefined
from leasework.model.outcome import COMPLETED, Decision
from leasework.model.schedule import Spec
from leasework.model.states import State
from leasework.store.operation import Term
from leasework.store.schedules import DueSchedule, TickDecision
from tests.contract.test_put_schedules import document
from tests.contract.world import ELECTION, World, at, identity, plan, planned


async def sync(world: World, *definitions, release: str = "r1", app: str = "default"):
    given = definitions or (planned(),)
    return await world.a.store.sync_schedules(app, release, given, world.now)


async def test_schedules_follow_the_code(world: World):
    synced = await sync(world, planned("b"), planned("a"))
    assert (synced.newest, synced.kept, synced.dropped) == (True, ["a", "b"], [])
    synced = await sync(world, planned("b"), planned("a"))
    assert (synced.kept, synced.dropped) == ([], []), "nothing changed"
    synced = await sync(world, planned("b", missed="skip"))
    assert (synced.kept, synced.dropped) == (["b"], ["a"])
    assert (await sync(world, planned("b"), app="another")).dropped == []


async def test_a_schedule_that_the_code_drops_takes_its_undecided_moments_along(world: World):
    await sync(world, planned("a"), planned("b", next_at=at(99)))
    assert [due.name for due in await world.a.store.due_schedules("default", 10, world.now)] == [
        "a"
    ]
    assert (await sync(world, planned("b", next_at=at(99)))).dropped == ["a"]
    await sync(world, planned("a", next_at=at(99)), planned("b", next_at=at(99)))
    assert await world.a.store.due_schedules("default", 10, world.now) == []


async def test_a_schedule_that_somebody_deleted_comes_back_with_its_undecided_moments(
    world: World,
):
    term = await world.a.lead()
    await sync(world)
    assert await world.a.store.fire(term, "default", [plan(None, 0, 1, 2)], at(2))
    assert await world.a.store.delete_schedule("default", "tick", True)
    world.now = at(5)
    # as of a look before what was decided, and before what was not
    assert (await sync(world, planned(next_at=at(1)))).kept == ["tick"]
    [due] = await world.a.store.due_schedules("default", 10, world.now)
    assert (due.next_at, due.high_water) == (at(1), at(2)), "nothing up to the mark fires again"


@pytest.mark.parametrize("wrong", [None, 1e6])
async def test_a_next_moment_that_somebody_moved_goes_back(world: World, wrong: float | None):
    term = await world.a.lead()
    await sync(world)
    moved = structs.replace(plan(None, 0, 1), next_at=wrong and at(wrong))
    assert await world.a.store.fire(term, "default", [moved], at(1))
    assert (await sync(world, planned(next_at=at(1)))).kept == [], "decided"
    assert (await sync(world, planned(next_at=at(2)))).kept == ["tick"]
    assert (await sync(world, planned(next_at=at(3)))).kept == []
    [due] = await world.a.store.due_schedules("default", 10, at(9))
    assert (due.next_at, due.high_water) == (at(2), at(1))


async def test_the_same_moments_stay_due_and_new_ones_begin_anew(world: World):
    await sync(world)
    await sync(world, planned(missed="skip", next_at=at(99)))
    [due] = await world.a.store.due_schedules("default", 10, world.now)
    assert (due.next_at, due.missed) == (at(0), "skip")
    await sync(world, planned(seconds=2.0, next_at=at(99)))
    [due] = await world.a.store.due_schedules("default", 10, world.now)
    assert (due.next_at, due.spec) == (at(0), planned(seconds=2.0).spec), "due before the change"
    await sync(world, planned("other", next_at=at(1)))
    await sync(world, planned("other", seconds=2.0, next_at=at(99)))
    assert await world.a.store.due_schedules("default", 10, at(98)) == []


def moments_of(due: DueSchedule, until: float) -> list[datetime]:
    spec = Spec.from_json(due.spec)
    moments = redefined(spec, due.former, lambda error: pytest.fail(str(error)))
    found, moment = [], due.next_at
    while moment is not None and moment <= at(until):
        found.append(moment)
        moment = moments.next_after(moment)
    return found


async def test_what_was_due_before_each_change_stays_due_until_it_is_decided(world: World):
    store = world.a.store
    world.now = at(0)
    await sync(world, planned(next_at=at(1)))
    world.now = at(3)
    await sync(world, planned(seconds=2.0, next_at=at(4)), release="r2")
    world.now = at(6.5)
    await sync(world, planned(seconds=10.0, next_at=at(10)), release="r3")
    await sync(world, planned(seconds=10.0, next_at=at(10), missed="skip"), release="r3")
    [due] = await store.due_schedules("default", 10, world.now)
    assert moments_of(due, 30) == [at(1), at(2), at(3), at(4), at(6), at(10), at(20), at(30)]

    await world.a.lead()
    decided = structs.replace(plan(None, 1, 2, 3, release="r3"), next_at=at(4))
    assert await store.fire(world.a.term, "default", [decided], at(7))
    [due] = await store.due_schedules("default", 10, at(7))
    assert moments_of(due, 10) == [at(4), at(6), at(10)]
    decided = structs.replace(plan(at(3), 4, 6, release="r3"), next_at=at(10))
    assert await store.fire(world.a.term, "default", [decided], at(7))
    [due] = await store.due_schedules("default", 10, at(10))
    assert (due.next_at, due.former) == (at(10), None)


async def test_a_change_to_a_schedule_that_never_fires_keeps_what_was_due(world: World):
    await sync(world)
    await sync(world, planned(seconds=2.0, next_at=None))
    [due] = await world.a.store.due_schedules("default", 10, world.now)
    assert moments_of(due, 5) == [at(0)]
    await world.a.lead()
    decided = structs.replace(plan(None, 0), next_at=None)
    assert await world.a.store.fire(world.a.term, "default", [decided], at(1))
    assert (await world.reports.schedules(10))[0].next_at is None
    assert await world.a.store.due_schedules("default", 10, at(9)) == []


async def test_the_newer_release_wins_while_a_node_of_it_lives(world: World):
    world.c.identity = identity(3, "r2")
    await world.c.join()
    assert (await sync(world, planned(missed="skip"), release="r2")).newest
    refused = await sync(world, release="r1")
    assert (refused.newest, refused.kept) == (False, [])
    await world.c.leave()
    assert (await sync(world, release="r1")).kept == ["tick"]


async def test_what_is_due_is_told_with_the_databases_time(world: World):
    await sync(world)
    store = world.a.store
    assert await store.due_schedules("default", 10, at(-1)) == []
    assert await store.due_schedules("another", 10, at(1)) == []
    [due] = await store.due_schedules("default", 10, at(1.5))
    assert (due.name, due.release, due.high_water) == ("tick", "r1", None)
    assert (due.next_at, due.now, due.grace_seconds) == (at(0), at(1.5), 5.0)
    assert due.spec == planned().spec


async def test_of_very_many_that_are_due_the_newest_moments_do_not_wait(world: World):
    await sync(world, *(planned(f"s{n}", next_at=at(n)) for n in range(9)))
    found = await world.a.store.due_schedules("default", 5, at(20))
    assert [due.name for due in found] == ["s0", "s1", "s2", "s7", "s8"]
    found = await world.a.store.due_schedules("default", 4, at(2))
    assert [due.name for due in found] == ["s0", "s1", "s2"]


async def test_a_decision_about_an_earlier_definition_is_not_written(world: World):
    """Even in one release, such as one whose cron expression comes from the environment."""
    await sync(world)
    await world.a.lead()
    store = world.a.store
    [due] = await store.due_schedules("default", 10, at(1))
    await sync(world, planned(seconds=2.0))
    decided = plan(None, 0, mark=due.mark)
    assert await store.fire(world.a.term, "default", [decided], at(1)) == []
    [due] = await store.due_schedules("default", 10, at(1))
    assert await store.fire(
        world.a.term, "default", [structs.replace(decided, mark=due.mark)], at(1)
    )


async def test_what_cannot_be_decided_is_left_out_until_its_definition_changes(world: World):
    await sync(world, planned("bad"), planned("fine", next_at=at(1)))
    store = world.a.store
    [bad] = await store.due_schedules("default", 1, at(2))
    assert bad.name == "bad"
    [fine] = await store.due_schedules("default", 1, at(2), [bad])
    assert fine.name == "fine"
    assert (await store.next_schedule("default", at(0)))[0] == 0.0
    assert (await store.next_schedule("default", at(0), [bad]))[0] == 1.0
    assert (await store.next_schedule("default", at(0), [bad, fine]))[0] is None
    await sync(world, planned("bad", missed="skip"), planned("fine", next_at=at(1)))
    assert [due.name for due in await store.due_schedules("default", 1, at(2), [bad])] == ["bad"]
    assert (await store.next_schedule("default", at(0), [bad]))[0] == 0.0


async def test_a_tick_and_its_job_are_written_once(world: World):
    await sync(world)
    await world.a.lead()
    await world.a.store.set_sleeping(world.a.id, ["default"])
    await world.heard()
    store, decided = world.a.store, plan(None, 0, 1)
    written = await store.fire(world.a.term, "default", [decided], at(1))
    assert written == [("tick", at(0), "fired"), ("tick", at(1), "fired")]
    assert await world.heard() == ["q:default"]
    again = plan(None, 0, 1)
    assert await store.fire(world.a.term, "default", [again], at(1)) == []
    jobs = await world.a.claim()
    assert [(job.id, job.scheduled_for) for job in jobs] == [
        (tick.job, tick.at) for tick in decided.ticks
    ]
    assert {(job.task, job.schedule, job.attempt) for job in jobs} == {("t", "tick", 1)}


async def test_the_mark_moves_from_what_was_seen_and_ticks_are_not_fired_twice(world: World):
    await sync(world)
    await world.a.lead()
    store = world.a.store
    await store.fire(world.a.term, "default", [plan(None, 0)], at(0))
    assert await store.fire(world.a.term, "default", [plan(at(5), 1)], at(1)) == []
    overlap = plan(at(0), 0, 1)
    assert await store.fire(world.a.term, "default", [overlap], at(1)) == [("tick", at(1), "fired")]
    assert len(await world.a.claim()) == 2


async def test_two_leaders_decide_once(world: World):
    await sync(world)
    old = await world.a.lead()
    new = await world.b.lead()
    fire = world.a.store.fire
    assert await fire(old, "default", [plan(None, 0)], at(0)) == []
    assert await fire(Term(ELECTION, new.token + 1), "default", [plan(None, 0)], at(0)) == []
    assert len(await fire(new, "default", [plan(None, 0)], at(0))) == 1


@pytest.mark.parametrize("change", ["release", "name", "paused"])
async def test_a_decision_on_another_schedule_writes_nothing(world: World, change: str):
    await sync(world)
    await world.a.lead()
    decided = plan(None, 0)
    if change == "paused":
        assert await world.a.store.pause_schedule("default", "tick", True)
    else:
        decided = structs.replace(decided, **{change: "another"})
    assert await world.a.store.fire(world.a.term, "default", [decided], at(0)) == []


async def test_missed_moments_are_recorded_and_make_no_job(world: World):
    await sync(world)
    await world.a.lead()
    missed = TickDecision(at(0), "missed", until=at(5))
    decided = structs.replace(plan(None, 6), ticks=(missed, TickDecision(at(6), "missed")))
    written = await world.a.store.fire(world.a.term, "default", [decided], at(9))
    assert [state for _, _, state in written] == ["missed", "missed"]
    assert await world.a.claim() == []
    newest, oldest = await world.reports.ticks("tick", 10)
    assert (newest.fire_at, newest.state, newest.job_id) == (at(6), "missed", None)
    assert (oldest.fire_at, oldest.until) == (at(0), at(5))
    assert oldest.lateness_seconds == 9.0 and oldest.term == world.a.term.token


async def test_the_ledger_says_what_became_of_each_job(world: World):
    await sync(world)
    await world.a.lead()
    store, ends = (
        world.a.store,
        [
            COMPLETED,
            Decision(State.DISCARDED, error="no"),
            Decision(State.RETRYABLE, run_in=60.0, error="no"),
        ],
    )
    decided = plan(None, *range(5))
    await store.fire(world.a.term, "default", [decided], at(4))
    world.now = at(5)
    jobs = await world.a.claim(limit=4)
    world.now = at(8)
    for job, end in zip(jobs, ends, strict=False):
        await world.a.ack(job, end)

    async def outcomes() -> list[tuple[str, bool]]:
        ticks = await world.reports.ticks("tick", 10, world.now)
        return [(tick.outcome, tick.ran_seconds is not None) for tick in ticks]

    told = [("waiting", False), ("running", True), ("waiting", False), ("discarded", True),
            ("completed", True)]  # fmt: skip
    assert await outcomes() == told
    missed = structs.replace(plan(at(4), 5), ticks=(TickDecision(at(5), "missed"),))
    await store.fire(world.a.term, "default", [missed], at(9))
    assert await outcomes() == [("missed", False), *told]


async def test_of_a_job_without_history_nothing_is_known_any_more(world: World):
    job = {**planned().job, "history": False}
    await sync(world, planned(job=job))
    await world.a.lead()
    await world.a.store.fire(world.a.term, "default", [plan(None, 0)], at(0))
    await world.a.ack((await world.a.claim())[0])
    [tick] = await world.reports.ticks("tick", 10)
    assert (tick.outcome, tick.ran_seconds) == ("unknown", None)


async def test_the_next_moment_and_how_far_the_mark_is_ahead(world: World):
    store = world.a.store
    assert await store.next_schedule("default", world.now) == (None, 0.0)
    await sync(world)
    await world.a.lead()
    assert await store.next_schedule("default", at(-2)) == (2.0, 0.0)
    await store.fire(world.a.term, "default", [plan(None, 0, 1, 2)], at(2))
    assert await store.next_schedule("default", at(0)) == (3.0, 2.0)
    assert await store.next_schedule("default", at(9)) == (-6.0, -7.0)


async def test_a_paused_schedule_is_neither_due_nor_next(world: World):
    await sync(world)
    store = world.a.store
    assert not await store.pause_schedule("default", "another", True)
    assert await store.pause_schedule("default", "tick", True, at(5))
    assert await store.pause_schedule("default", "tick", True, at(6)), "it is paused already"
    assert await store.due_schedules("default", 10, world.now) == []
    assert await store.next_schedule("default", world.now) == (None, 0.0)
    assert (await world.reports.schedules(10))[0].paused
    assert await store.pause_schedule("default", "tick", False, at(7))
    [due] = await store.due_schedules("default", 10, world.now)
    assert (due.paused_at, due.resumed_at) == (at(5), at(7))
    assert await store.pause_schedule("default", "tick", False, at(8))
    assert (await store.due_schedules("default", 10, world.now))[0].resumed_at == at(7)


async def test_schedules_are_listed_with_their_last_tick(world: World):
    await sync(world, planned("b"), planned())
    await world.a.lead()
    await world.a.store.fire(world.a.term, "default", [plan(None, 0, 1)], at(1))
    listed = await world.reports.schedules(10)
    assert [row.name for row in listed] == ["b", "tick"]
    assert listed[0].last_fire_at is None
    assert (listed[1].last_fire_at, listed[1].last_state) == (at(1), "fired")
    assert (listed[1].high_water, listed[1].next_at) == (at(1), at(2))


async def test_the_databases_time_is_what_it_is_told(world: World):
    assert await world.a.store.database_now(at(3)) == at(3)


async def test_a_newer_release_without_schedules_keeps_nobody_from_a_rollback(world: World):
    """Web processes often have a release of their own, and define no schedules."""
    await sync(world, planned(missed="skip"), release="r2")
    world.c.identity = structs.replace(identity(3, "web-41"), defines=False)
    await world.c.join()
    assert (await sync(world, release="r1")).kept == ["tick"]


async def test_a_paused_schedule_stays_paused_over_a_release_that_lacks_it(world: World):
    await sync(world, planned("a"), planned("b"))
    await world.a.store.pause_schedule("default", "a", True)
    assert (await sync(world, planned("b"))).dropped == []
    await sync(world, planned("a"), planned("b"))
    assert not await world.a.store.put_schedule("default", document("a"), world.now)
    assert {row.name: row.paused for row in await world.reports.schedules(10)} == {
        "a": True, "b": False,
    }  # fmt: skip
    await sync(world, planned("b"))
    assert await world.a.store.put_schedule("default", document("a"), world.now), "nobody's code"
