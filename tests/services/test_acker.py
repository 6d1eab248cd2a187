"""The acker: what it writes together."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from leasework_lab.sim.rows import SimDatabase
from leasework_lab.sim.store import SimStore

from leasework.config import Limits, Settings
from leasework.env import Clock, Env
from leasework.jobs.acker import Acker
from leasework.jobs.running import Claim, Running
from leasework.jobs.tasks import Registry
from leasework.loops.service import ServiceContext
from leasework.model.job import ClaimedJob
from leasework.model.outcome import PLAIN, Complete, Fail
from leasework.store.nodes import NodeIdentity
from tests.support.requests import job_request

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def test_two_outcomes_of_one_job_are_not_written_in_one_statement():
    """It was taken away after it had run too long, and this very node claimed it again. Found by
    the simulation: python -m leasework_lab.sim --seed 2, at the commit before."""
    store = SimStore(SimDatabase(lambda: NOW))
    me = NodeIdentity(uuid4(), "default", "r", "host", 1, "0", True, ("t",), {"default": 1})
    await store.register(me, 6.0, None)
    await store.enqueue([(job := uuid4(), job_request())], 1 << 20, False, None)
    events: list[tuple[str, Any]] = []
    context = ServiceContext(
        Settings(), Env(), lambda kind, **f: events.append((kind, f.get("token"))), store, store
    )
    acker = Acker(context, Registry(), Running(), 100)
    [first] = await store.claim(me.id, 1, {"default": 1}, [], None)
    await store.requeue(job, first.claim_token)
    [second] = await store.claim(me.id, 1, {"default": 1}, [], None)
    acker.put(Claim(first, me.id), Fail("taken away meanwhile"), 1.0)
    acker.put(Claim(second, me.id), Complete(), 1.0)
    while acker.backlog:
        await acker.flush(None)
    assert ("ack_refused", first.claim_token) in events
    record = await store.get(job)
    assert record and record.state == "completed" and record.last_error is None


class Still(Clock):
    """A clock that stands still, however slow the machine is."""

    def boot_now(self) -> float:
        return 1000.0


def lone() -> Acker:
    store: Any = SimStore(SimDatabase(lambda: NOW))
    nothing: Any = lambda *_, **__: None  # noqa: E731
    context = ServiceContext(Settings(), Env(Still()), nothing, store, store)
    return Acker(context, Registry(), Running(), 100)


NODE = uuid4()


def put(acker: Acker, count: int, ran: float) -> None:
    for number in range(count):
        job = ClaimedJob(
            uuid4(), "t", "default", {}, 0, 1, 5, 0, number, None, None, NOW, True, None
        )
        now = Still().boot_now()
        acker.put(Claim(job, NODE, started_at=now - ran), PLAIN, now)


def test_what_runs_and_is_not_recorded_is_kept_small_where_a_run_takes_some_time():
    acker = lone()
    put(acker, 60, 0.002)
    assert acker.has_room(lambda: 39)
    assert not acker.has_room(lambda: 40), "a kill would lose a hundred runs"
    acker._slots = 200
    assert acker.has_room(lambda: 40), "every slot may be used"


def test_brief_runs_may_be_many_and_long_ones_are_few():
    brief, long = lone(), lone()
    put(brief, Limits.unrecorded_outcomes, 0.0)
    assert brief.has_room(lambda: 100)
    put(brief, 1, 0.0)
    assert not brief.has_room(lambda: 0)
    put(long, 200, 0.5)
    assert long.has_room(lambda: 100)


def test_nobody_is_woken_between_the_first_outcome_and_a_full_batch():
    acker, rung = lone(), []
    acker.wake = lambda: rung.append(len(acker._queue))
    job = ClaimedJob(uuid4(), "t", "default", {}, 0, 1, 5, 0, 0, None, None, NOW, True, None)
    acker._running.add([Claim(job._replace(claim_token=-token), NODE) for token in range(1, 500)])
    put(acker, 101, 0.0)
    assert rung == [1, 100, 101]


def test_the_last_outcome_of_all_that_runs_is_written_at_once():
    acker, rung = lone(), []
    acker.wake = lambda: rung.append(len(acker._queue))
    job = ClaimedJob(uuid4(), "t", "default", {}, 0, 1, 5, 0, 0, None, None, NOW, True, None)
    acker._running.add([Claim(job._replace(claim_token=-token), NODE) for token in (1, 2, 3)])
    put(acker, 3, 0.0)
    assert rung == [1, 3]


async def test_outcomes_are_written_at_once_when_a_job_waits_for_that():
    acker = lone()
    put(acker, 40, 0.002)
    for token in range(100, 160):
        acker._running.add([Claim(acker._queue[0][0].job._replace(claim_token=token), uuid4())])
    assert await acker.tick(None) > 0, "more is to come: it waits a moment"
    assert not acker.has_room(lambda: 60)
    await acker.tick(None)
    assert acker.backlog == 0
