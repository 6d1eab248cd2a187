"""A claim that begins at a mark: what it sees, and what it leaves to a look at everything."""

from __future__ import annotations

from uuid import UUID

from leasehold.model.job import LAST, Mark, Span
from tests.contract.world import World, at


async def from_mark(world: World, mark: Mark, end: Mark = LAST) -> list[UUID]:
    span = Span(mark, end)
    jobs = await world.a.store.claim(world.a.id, 1, "default", [], 100, world.now, span)
    return [job.id for job in jobs]


async def test_what_lies_before_the_mark_is_left(world: World):
    [before] = await world.enqueue(run_at=at(-30))
    [same, equal] = await world.enqueue(2, run_at=at(-20))
    [behind] = await world.enqueue(run_at=at(-10))
    assert await from_mark(world, Mark(0, at(-20), equal)) == [equal, behind]
    assert [job.id for job in await world.b.claim()] == [before, same]


async def test_what_is_more_urgent_than_the_mark_is_seen(world: World):
    [urgent] = await world.enqueue(run_at=at(-30), priority=-1)
    [before] = await world.enqueue(run_at=at(-30))
    [later] = await world.enqueue(run_at=at(-40), priority=1)
    assert await from_mark(world, Mark(0, at(-20), UUID(int=0))) == [urgent, later]
    assert [job.id for job in await world.b.claim()] == [before]


async def test_jobs_of_the_last_two_seconds_are_seen_before_any_mark(world: World):
    [old] = await world.enqueue(run_at=at(-2.1))
    [young] = await world.enqueue(run_at=at(-1.9))
    assert await from_mark(world, Mark(0, at(60), UUID(int=0))) == [young]
    assert [job.id for job in await world.b.claim()] == [old]


async def test_the_limit_holds_for_urgent_and_usual_jobs_together(world: World):
    usual = await world.enqueue(3, run_at=at(-10))
    urgent = await world.enqueue(2, run_at=at(-10), priority=-1)
    span = Span(Mark(0, at(-20), UUID(int=0)), LAST)
    jobs = await world.a.store.claim(world.a.id, 1, "default", [], 4, world.now, span)
    assert [job.id for job in jobs] == [*urgent, *usual[:2]]


async def test_what_lies_at_the_end_of_a_span_or_behind_it_is_left(world: World):
    [first] = await world.enqueue(run_at=at(-30))
    [before, end] = await world.enqueue(2, run_at=at(-20))
    [behind] = await world.enqueue(run_at=at(-10))
    [later] = await world.enqueue(run_at=at(-40), priority=1)
    [urgent] = await world.enqueue(run_at=at(-5), priority=-1)
    span = Mark(0, at(-30), UUID(int=0)), Mark(0, at(-20), end)
    assert await from_mark(world, *span) == [first, before]
    assert [job.id for job in await world.b.claim()] == [urgent, end, behind, later]
