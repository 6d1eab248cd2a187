"""Jobs moved by hand, statement by statement, for tests of races between two sessions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import psycopg

from leasework.model.begins import Begins
from leasework.model.job import ClaimedJob, JobOptions
from leasework.model.outcome import Decision
from leasework.model.states import State
from leasework.store.jobs import Acked, AckItem, _copy_lines, claim_params
from leasework.store.nodes import NodeIdentity
from leasework.store.store import Store
from tests.support.requests import job_request


def copy_line() -> str:
    """A new job, as a row of job/copy."""
    return next(_copy_lines([(uuid4().int, JobOptions("t"), "{}", None)], set()))


@dataclass
class Bench:
    """``store`` does what a node ``node`` would; ``user`` is a transaction of somebody else."""

    store: Store
    user: psycopg.AsyncConnection[Any]
    node: UUID = field(default_factory=uuid4)

    @classmethod
    async def make(
        cls, store: Store, user: psycopg.AsyncConnection[Any], lease: float = 10.0
    ) -> Bench:
        bench = cls(store, user)
        identity = NodeIdentity(bench.node, "a", "r", "host", 1, "0", True, ("t",), {"default": 1})
        await store.register(identity, lease, None)
        return bench

    async def enqueue(self, **options: Any) -> UUID:
        request = job_request(**options)
        [(job, _)] = await self.store.enqueue([(uuid4(), request)], 1 << 20, False, None)
        return job

    async def claim(self, limit: int = 100) -> list[ClaimedJob]:
        return await self.store.claim(self.node, 1, {"default": limit}, [], None)

    def claim_params(
        self, begins: Begins | None = None, limit: int = 100, not_tasks: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Of the statement ``job/claim``, for sessions of the test's own."""
        return claim_params(
            self.node, 1, {"default": limit}, not_tasks, None, begins or Begins(time.monotonic)
        )

    async def claimed(self, **options: Any) -> ClaimedJob:
        """A new job that this node runs."""
        await self.enqueue(**options)
        [job] = await self.claim()
        return job

    async def ack(self, *jobs: ClaimedJob, state: State = State.COMPLETED) -> Acked:
        items = [AckItem(job.id, job.claim_token, Decision(state), 0.1) for job in jobs]
        return await self.store.ack(self.node, items, None)

    async def state(self, job: UUID) -> State:
        record = await self.store.get(job)
        assert record
        return record.state
