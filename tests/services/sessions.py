"""Two stores on one database, as two processes have them, and plain sessions that hold locks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg

from leasework.config import Settings
from leasework.model.job import ClaimedJob
from leasework.model.lease import Seen
from leasework.model.outcome import Decision
from leasework.model.schedule import every
from leasework.model.states import State
from leasework.pg.sql import statement
from leasework.store.jobs import AckItem
from leasework.store.nodes import Heartbeat, NodeIdentity
from leasework.store.operation import Term
from leasework.store.schedules import ScheduleDefinition, TickDecision, TickPlan
from leasework.store.store import Store
from tests.support.requests import job_request
from tests.support.wait import until_async

LEASE = 6.0
ELECTION = "default"
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Process:
    """What one process does, one statement at a time."""

    store: Store
    identity: NodeIdentity
    token: int = 0
    epoch: int = 1
    term: Term | None = None

    @property
    def id(self) -> UUID:
        return self.identity.id

    async def join(self) -> None:
        self.token = await self.store.register(self.identity, LEASE, None)

    async def beat(self, *held: Term) -> Heartbeat:
        return await self.store.heartbeat(self.id, self.token, held, [ELECTION], {}, [], 10.0, None)

    async def see(self) -> Seen:
        return (await self.beat()).leaders[ELECTION]

    async def acquire(self, seen: Seen) -> int | None:
        token = await self.store.acquire(ELECTION, self.identity, seen, LEASE, 10.0, None)
        if token:
            self.term = Term(ELECTION, token)
        return token

    async def lead(self) -> Term:
        assert await self.acquire(await self.see())
        assert self.term
        return self.term

    async def claim(self, limit: int = 100) -> list[ClaimedJob]:
        return await self.store.claim(self.id, self.epoch, {"default": limit}, [], None)

    async def ack(self, job: ClaimedJob, token: int | None = None) -> bool:
        item = AckItem(job.id, token or job.claim_token, Decision(State.COMPLETED), 0.1)
        acked = await self.store.ack(self.id, [item], None)
        return bool(acked.written)

    async def fire(self, schedule: str, seen: datetime | None = None) -> list[Any]:
        assert self.term
        return await self.store.fire(self.term, "default", [tick(schedule, seen)], None)


@dataclass
class Two:
    """``a`` and ``b``; ``user`` is a third session, in autocommit."""

    dsn: str
    user: psycopg.AsyncConnection[Any]
    a: Process
    b: Process
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def sql(self, text: str, *params: Any) -> list[Any]:
        cursor = await self.user.execute(text.encode(), params)
        return await cursor.fetchall() if cursor.description else []

    async def one(self, text: str, *params: Any) -> Any:
        [[value]] = await self.sql(text, *params)
        return value

    async def session(self) -> psycopg.AsyncConnection[Any]:
        """A session with an open transaction, for locks that are held."""
        connect = psycopg.AsyncConnection.connect(self.dsn)
        return await self.stack.enter_async_context(await connect)

    async def shorten(self, *, lease: float = 0.0, call_timeout: float = 0.0) -> None:
        """Set what ``b`` allows a session whose answer nobody reads."""
        await self.sql("update leasework.node set lease_seconds = %s", lease)
        self.b.store.pool.call_timeout = call_timeout

    async def unread(self, text: str) -> int:
        """Start ``text`` in a session of leasework whose process does not read the answer. Return
        the session's pid."""
        dsn = psycopg.conninfo.make_conninfo(self.dsn, application_name="leasework work")
        frozen = psycopg.pq.PGconn.connect(dsn.encode())
        self.stack.callback(frozen.finish)
        frozen.send_query(text.encode())

        async def stuck() -> bool:
            waits = "select count(*) from pg_stat_activity where pid = %s and wait_event = %s"
            return bool(await self.one(waits, frozen.backend_pid, "ClientWrite"))

        await until_async(stuck, what="an answer that is not read")
        return frozen.backend_pid

    async def ended(self, pid: int) -> bool:
        return not await self.one("select count(*) from pg_stat_activity where pid = %s", pid)

    async def enqueue(self, count: int = 1, **options: Any) -> list[UUID]:
        jobs = [(uuid4(), job_request(**options))]
        jobs += [(uuid4(), jobs[0][1]) for _ in range(count - 1)]
        await self.a.store.enqueue(jobs, 1 << 20, False, None)
        return [job_id for job_id, _ in jobs]

    async def state(self, job: UUID) -> str:
        return str(await self.one("select state from leasework.jobs where id = %s", job))

    async def waits(self) -> None:
        """Until a session of one of the stores waits for a lock."""

        async def waiting() -> bool:
            return bool(
                await self.one(
                    "select count(*) from pg_stat_activity where datname = current_database()"
                    " and application_name like 'leasework %%' and wait_event_type = 'Lock'"
                )
            )

        await until_async(waiting, what="a statement that waits for a lock")

    async def schedule(self, name: str) -> None:
        planned = ScheduleDefinition(
            name, every(seconds=1).to_json(), "each second", "t", JOB, "all", 5.0, MOMENT
        )
        await self.a.store.sync_schedules("default", "r", [planned], None)


JOB = {"queue": "default", "priority": 0, "max_attempts": 5, "history": True, "payload": {}}


def tick(schedule: str, seen: datetime | None = None) -> TickPlan:
    """The decision to fire the first moment."""
    fired = TickDecision(MOMENT, "fired", uuid4())
    return TickPlan(schedule, "r", seen, MOMENT, MOMENT.replace(second=1), (fired,))


async def execute(
    session: psycopg.AsyncConnection[Any], name: str, params: dict[str, Any]
) -> Sequence[Any]:
    """One of our statements in a session of the test's own; its transaction stays open."""
    cursor = await session.execute(statement(name, "leasework").encode(), params)
    return await cursor.fetchall()


@asynccontextmanager
async def two_processes(dsn: str) -> AsyncIterator[Two]:
    """Two that have joined, on a fresh schema; nobody leads yet."""
    settings = Settings(dsn=dsn)
    processes = []
    for pid in (1, 2):
        identity = NodeIdentity(
            uuid4(), "default", "r", "host", pid, "0", True, ("t",), {"default": 1}
        )
        processes.append(Process(Store(settings, f"test{pid}"), identity))
    a, b = processes
    async with (
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as user,
        AsyncExitStack() as stack,
    ):
        await a.join()
        await b.join()
        await a.store.ensure_election(ELECTION, LEASE)
        yield Two(dsn, user, a, b, stack)
    for process in processes:
        await process.store.close()
