"""A worker that claims and remembers where to begin, for tests with real sessions."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from leasework.model.begins import Begins
from leasework.model.job import ClaimedJob
from leasework.pg.sql import statement
from tests.pg.bench import Bench
from tests.support.wait import until_async

Run = Callable[..., Awaitable[list[Any]]]
FRESH = ("default", 1)
ROUNDS = 20
INSERT = """
insert into leasework.job (id, queue, task_name, payload) values (%(id)s, 'default', 't', '{}')
"""
MANY = """
insert into leasework.job (id, queue, task_name, payload)
select gen_random_uuid(), 'default', 't', to_jsonb(repeat(md5(n::text), 50))
from generate_series(1, 3000) n
"""
"""Four on a page."""
SMALL = """
insert into leasework.job (id, queue, task_name, payload)
select gen_random_uuid(), 'default', 't', '{}' from generate_series(1, 20000)
"""
TURN = "leasework.lock_class('leasework.claim'), hashtext('default')"


def jobs_of(rows: list[Any]) -> list[UUID]:
    """The jobs that ``job/claim`` returned."""
    return [row[0] for row in rows if row[0]]


class Worker:
    """It claims, and remembers where to begin."""

    def __init__(self, bench: Bench, sql: Run) -> None:
        self.bench = bench
        self.sql = sql
        self.begins = Begins(time.monotonic)
        self.not_tasks: Sequence[str] = ()

    @property
    def begin(self) -> int:
        return self.begins.levels.get(FRESH, 0)

    async def claim(
        self, limit: int = 100, not_tasks: Sequence[str] = (), **limits: int
    ) -> list[ClaimedJob]:
        limits = limits or {"default": limit}
        unwanted = [*self.not_tasks, *not_tasks]
        return await self.bench.store.claim(self.bench.node, 1, limits, unwanted, None, self.begins)

    async def ids(self) -> list[UUID]:
        return [job.id for job in await self.claim()]

    async def round(self) -> None:
        """A job comes, is claimed and done."""
        job = await self.bench.enqueue()
        claimed = await self.claim()
        assert job in [c.id for c in claimed]
        await self.bench.ack(*claimed)

    async def rounds(self) -> None:
        for _ in range(ROUNDS):
            await self.round()

    async def get_ahead(self, seat: int | None = None) -> None:
        """Until all of this server's transactions have ended that could hold the begin back."""
        behind = await self.highest() if seat is None else seat

        async def ahead() -> bool:
            await self.round()
            return self.begin > behind

        await until_async(ahead, 60, f"claims to begin behind seat {behind}")

    async def highest(self) -> int:
        [(seat,)] = await self.sql("select last_value from leasework.seat_seq")
        return int(seat)

    async def buffers(self, rows: int = 2) -> int:
        """Pages that a claim of one job looks at, in a session that has made its plans. It answers
        with the job and with what it saw."""
        text = f"explain (analyze, buffers, format json) {statement('job/claim', 'leasework')}"
        for _ in range(3):
            await self.bench.enqueue()
            params = self.bench.claim_params(self.begins, not_tasks=self.not_tasks)
            [[[found]]] = await self.sql(text, params)
            assert found["Plan"]["Actual Rows"] == rows
        return int(found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"])
