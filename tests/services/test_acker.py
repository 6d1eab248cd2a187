"""The acker: what it writes together."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from leasehold.config import Limits
from leasehold.env import Env
from leasehold.model.job import JobRequest
from leasehold.model.outcome import Complete, Fail
from leasehold.ports import NodeIdentity
from leasehold.services.acker import Acker
from leasehold.services.running import Claim, Running
from leasehold.services.tasks import Registry
from leasehold.sim.rows import SimDatabase
from leasehold.sim.store import SimStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def test_two_outcomes_of_one_job_are_not_written_in_one_statement():
    """It was taken away after it had run too long, and this very node claimed it again. Found by
    the simulation: python -m leasehold.sim --seed 2, at the commit before."""
    store = SimStore(SimDatabase(lambda: NOW))
    me = NodeIdentity(uuid4(), "default", "r", "host", 1, "0", True, ("t",), {"default": 1})
    await store.register(me, 6.0, None)
    await store.enqueue([(job := uuid4(), JobRequest("t", "{}"))], 1 << 20, False, None)
    events: list[tuple[str, Any]] = []
    acker = Acker(
        store,
        Env(),
        Limits(),
        Registry(),
        Running(),
        lambda kind, **fields: events.append((kind, fields.get("token"))),
        lambda: None,
    )
    [first] = await store.claim(me.id, 1, "default", [], 1, None)
    await store.requeue(job, first.claim_token)
    [second] = await store.claim(me.id, 1, "default", [], 1, None)
    acker.put(Claim(first, me.id), Fail("taken away meanwhile"))
    acker.put(Claim(second, me.id), Complete())
    while acker.backlog:
        await acker.flush(None)
    assert ("ack_refused", first.claim_token) in events
    record = await store.get(job)
    assert record and record.state == "completed" and record.last_error is None
