"""The virtual-time loop and the link: what the simulation stands on."""

from __future__ import annotations

import asyncio

import pytest
from leasework_lab.sim.env import DatabaseClock
from leasework_lab.sim.link import FaultyStore, Link, Server, Weather
from leasework_lab.sim.loop import Place, VirtualLoop, context_of
from leasework_lab.sim.rows import SimDatabase
from leasework_lab.sim.store import SimStore

from leasework.env import seeded
from leasework.errors import LeaseworkError, QueryFailed, Unavailable
from leasework.model.job import JobOptions

pass_time = asyncio.sleep  # virtual: nobody waits


def run(main):
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()


def test_time_jumps_to_the_next_timer():
    async def main(loop):
        await pass_time(3600)
        return loop.time()

    assert run(main) == pytest.approx(3600)


def test_a_paused_place_waits_and_goes_on_in_order():
    async def main(loop):
        place, seen = Place("p"), []

        async def count():
            for _ in range(3):
                await pass_time(1)
                seen.append(loop.time())

        task = loop.create_task(count(), context=context_of(place))
        await pass_time(1.5)
        place.paused = True
        await pass_time(5)
        assert len(seen) == 1
        loop.resume(place)
        await task
        return seen

    assert run(main) == pytest.approx([1.0, 6.5, 7.5], abs=1e-3)


def test_a_loop_in_which_nothing_can_happen_says_so():
    async def main(loop):
        await loop.create_future()

    loop = VirtualLoop()
    task = main(loop)
    with pytest.raises(LeaseworkError, match="stands still"):
        loop.run_until_complete(task)
    task.close()


def test_a_thread_is_run_at_once():
    async def main(loop):
        return await asyncio.to_thread(lambda: 7)

    assert run(main) == 7


def linked(loop: VirtualLoop, **weather: float) -> tuple[SimDatabase, Link]:
    db = SimDatabase(DatabaseClock(loop))
    server = Server(loop, SimStore(db), lambda name, args, answer, who: None)
    return db, Link(server, seeded(1), Weather(**weather))


@pytest.mark.parametrize("cut", ["requests", "answers"])
def test_a_cut_link_leaves_the_outcome_unknown(cut: str):
    async def main(loop):
        db, link = linked(loop)
        link.cut = cut
        store = FaultyStore.over(link, 2.0)
        with pytest.raises(Unavailable) as caught:
            await store.ensure_election("e", 6.0)
        assert caught.value.sent and loop.time() == pytest.approx(2.0, abs=0.01)
        return "e" in db.leaders

    assert run(main) == (cut == "answers")


def test_a_server_that_is_down_refuses_at_once():
    async def main(loop):
        _, link = linked(loop)
        link.server.up = False
        with pytest.raises(Unavailable) as caught:
            await FaultyStore.over(link, 2.0).settle([])
        assert not caught.value.sent

    run(main)


def test_nobody_waits_longer_for_a_refusal_than_for_an_answer():
    async def main(loop):
        _, link = linked(loop, refused=1.0, slow=1.0, slow_seconds=1000.0)
        for _ in range(5):
            began = loop.time()
            with pytest.raises(Unavailable) as caught:
                await FaultyStore.over(link, 2.0).settle([])
            assert not caught.value.sent
            assert loop.time() - began < 2.01

    run(main)


def test_a_refusal_of_the_database_comes_back():
    async def main(loop):
        db, link = linked(loop)
        store = FaultyStore.over(link, 2.0)
        await store.ensure_election("e", 6.0)
        db.fences.clear()
        with pytest.raises(QueryFailed):
            await store.copy([(0, JobOptions("t"), "{}", None)] * 2, 2)

    run(main)


def test_calls_of_one_store_wait_their_turn():
    async def main(loop):
        _, link = linked(loop, latency=0.5)
        store = FaultyStore.over(link, 100.0)
        ends = []

        async def ask():
            await store.settle([])
            ends.append(loop.time())

        await asyncio.gather(ask(), ask(), ask())
        return ends

    first, second, third = run(main)
    assert second - first > 0.4 and third - second > 0.4
