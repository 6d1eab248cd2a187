"""An enqueue that got no answer and is tried again, with the same ids; either try may come late."""

from __future__ import annotations

from uuid import uuid4

import pytest

from leasework.model.job import JobRequest
from tests.contract.world import LIMIT, World, at
from tests.support.requests import job_request

DAYS = {"events": 30, "ticks": 30, "attempts": 7, "history": 30}


def request(**options) -> JobRequest:
    return job_request(**options)


async def test_a_repeated_try_makes_no_finished_job_again(world: World):
    job = (uuid4(), request())
    store = world.a.store
    await store.enqueue([job], LIMIT, False, world.now)
    [claimed] = await world.a.claim()
    await world.a.ack(claimed)
    assert await store.enqueue([job], LIMIT, True, world.now) == [(job[0], False)]
    assert await world.state(job[0]) == "completed" and await world.a.claim() == []


@pytest.mark.parametrize("retried", [False, True])
async def test_an_enqueue_that_arrives_when_its_job_has_finished_changes_nothing(
    world: World, retried: bool
):
    """It was given up and repeated, and the repetition's job has run: a late first try, or a
    repetition that comes late itself."""
    sent = [(uuid4(), request(unique="k")), (uuid4(), request())]
    store = world.a.store
    await store.enqueue(sent, LIMIT, False, at(0))
    for job in await world.a.claim(2):
        await world.a.ack(job)
    assert await store.enqueue(sent, LIMIT, retried, at(1)) == [(job, False) for job, _ in sent]
    assert await world.a.claim() == []
    [again] = await world.enqueue(unique="k")  # the key was not left with the late one
    assert await world.state(again) == "available"


async def test_a_plain_first_try_that_comes_when_its_repetition_has_run_changes_nothing(
    world: World,
):
    sent, store = [(uuid4(), request())], world.a.store
    assert await store.enqueue(sent, LIMIT, True, world.now) == [(sent[0][0], True)]
    await world.a.ack(*await world.a.claim())
    await store.set_sleeping(world.a.id, ["default"])
    await world.heard()
    assert await store.enqueue(sent, LIMIT, False, world.now) == [(sent[0][0], False)]
    assert await world.a.claim() == [] and await world.heard() == []


async def test_a_repetition_is_remembered_for_two_hours_after_its_job_was_seen(world: World):
    sent, store = [(uuid4(), request())], world.a.store
    await store.enqueue(sent, LIMIT, True, at(0))
    assert await store.prune(DAYS, 10, at(9000)) == 0, "the job waits"
    [claimed] = await world.a.claim()
    assert await store.prune(DAYS, 10, at(9000)) == 0, "the job runs"
    await world.a.ack(claimed)
    assert await store.prune(DAYS, 10, at(16_200)) == 0
    assert await store.enqueue(sent, LIMIT, False, at(16_200)) == [(sent[0][0], False)]
    assert await store.prune(DAYS, 10, at(16_201)) == 1
    assert await store.prune(DAYS, 10, at(16_201)) == 0


@pytest.mark.parametrize("seconds", [-8000, 8000], ids=["behind", "ahead"])
async def test_a_repetition_by_a_wrong_clock_is_forgotten_as_well(world: World, seconds: float):
    sent, store = [(uuid4(), request())], world.a.store
    await store.enqueue(sent, LIMIT, True, at(seconds))
    await store.cancel(sent[0][0], "not wanted", at(-8000))
    assert await store.prune(DAYS, 10, at(0)) == 1


async def test_several_and_those_with_a_key_leave_nothing(world: World):
    """Their first tries look at the history."""
    store = world.a.store
    for sent in ([(uuid4(), request()) for _ in range(2)], [(uuid4(), request(unique="k"))]):
        await store.enqueue(sent, LIMIT, True, at(0))
        for job in await world.a.claim(2):
            await world.a.ack(job)
    assert await store.prune(DAYS, 10, at(10_000)) == 0


async def test_a_repetition_that_makes_nothing_leaves_nothing(world: World):
    """Its first try has been carried out: that cannot come again."""
    sent, store = [(uuid4(), request())], world.a.store
    await store.enqueue(sent, LIMIT, False, at(0))
    assert await store.enqueue(sent, LIMIT, True, at(0)) == [(sent[0][0], False)]
    assert await store.prune(DAYS, 10, at(7201)) == 0
