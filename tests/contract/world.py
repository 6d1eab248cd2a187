"""What a contract test gets: two sessions on one database, simulated or real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
from leasework_lab.sim.rows import SimDatabase
from leasework_lab.sim.store import SimStore

from leasework.config import Settings
from leasework.env import Clock, Env, Ids
from leasework.model.job import ClaimedJob, JobRecord
from leasework.model.lease import Seen
from leasework.model.outcome import Decision
from leasework.model.schedule import every
from leasework.model.states import State
from leasework.store.jobs import Acked, AckItem
from leasework.store.nodes import Heartbeat, NodeIdentity, Signal
from leasework.store.operation import Term
from leasework.store.reports import Reports
from leasework.store.schedules import ScheduleDefinition, TickDecision, TickPlan
from leasework.store.store import Store
from tests.contract.sim_reports import SimReports
from tests.support.requests import job_request

LEASE = 6.0
ELECTION = "default"
LIMIT = 1 << 20
IDS = Ids(Clock())  # as the client's: they grow with time
T0 = datetime(2026, 1, 1, 12, tzinfo=UTC)
DONE = Decision(State.COMPLETED)
NO_TERM = Term(ELECTION, -1)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


@dataclass
class Session:
    """What one process does, one statement at a time, at ``world.now``."""

    store: Store
    identity: NodeIdentity
    world: World
    token: int = 0
    epoch: int = 1
    term: Term = NO_TERM

    @property
    def id(self) -> UUID:
        return self.identity.id

    async def join(self) -> None:
        self.token = await self.store.register(self.identity, LEASE, self.world.now)

    async def beat(
        self, *held: Term, info: dict[str, Any] | None = None, heard: Sequence[Signal] = ()
    ) -> Heartbeat:
        return await self.store.heartbeat(
            self.id, self.token, held, [ELECTION], info or {}, heard, 10.0, self.world.now
        )

    async def see(self) -> Seen:
        return (await self.beat()).leaders[ELECTION]

    async def acquire(self, seen: Seen) -> int | None:
        token = await self.store.acquire(ELECTION, self.identity, seen, LEASE, 10.0, self.world.now)
        if token:
            self.term = Term(ELECTION, token)
        return token

    async def lead(self) -> Term:
        assert await self.acquire(await self.see())
        return self.term

    async def claim(self, limit: int = 100, not_tasks: Sequence[str] = ()) -> list[ClaimedJob]:
        return await self.store.claim(
            self.id, self.epoch, {"default": limit}, not_tasks, self.world.now
        )

    async def ack(
        self, job: ClaimedJob, decision: Decision = DONE, *, token: int | None = None
    ) -> Acked:
        item = AckItem(job.id, token or job.claim_token, decision, 0.5)
        return await self.store.ack(self.id, [item], self.world.now)

    async def ack_again(self, job: ClaimedJob, decision: Decision = DONE) -> Acked:
        item = AckItem(job.id, job.claim_token, decision, 0.5)
        return await self.store.ack_again(self.id, [item], self.world.now)

    async def stage(self) -> tuple[int, int, float | None]:
        staged = await self.store.stage(self.term, 100, self.world.now)
        return staged.count, staged.held_on, staged.next_in

    async def leave(self) -> None:
        assert await self.store.leave(self.id, self.token)

    async def rescue(self, *dead: Session) -> list[tuple[UUID, bool, bool]]:
        freed = await self.store.rescue([d.id for d in dead], 3, 100, self.world.now)
        return [(f.job, f.blamed, f.quarantined) for f in freed]


@dataclass
class World:
    """``a`` and ``b`` have joined; ``now`` is what the database takes for its time."""

    a: Session
    b: Session
    c: Session
    """Not joined."""
    hold: Callable[[UUID], AbstractAsyncContextManager[None]]
    """A transaction of somebody else's holds the job's row meanwhile."""
    forget: Callable[[str], Awaitable[None]]
    """Somebody deletes the rows of ``leader``, ``fence``, ``term``, ``death`` or ``claimed_to`` by
    hand, or truncates ``node``."""
    reports: Reports
    """What people read. The simulated ones have only what shows the effects of operations."""
    heard: Callable[[], Awaitable[list[str]]]
    """The notifications since the last call."""
    now: datetime = T0

    async def enqueue(self, count: int = 1, **options: Any) -> list[UUID]:
        jobs = [(IDS.new(), job_request(**options)) for _ in range(count)]
        await self.a.store.enqueue(jobs, LIMIT, False, self.now)
        return [job_id for job_id, _ in jobs]

    async def claimed(self, by: Session | None = None, **options: Any) -> ClaimedJob:
        """A new job, in the hands of ``a`` or of ``by``."""
        [job_id] = await self.enqueue(**options)
        jobs = await (by or self.a).claim()
        return next(job for job in jobs if job.id == job_id)

    async def get(self, job: UUID) -> JobRecord:
        record = await self.b.store.get(job)
        assert record
        return record

    async def state(self, job: UUID) -> str:
        return str((await self.get(job)).state)


def identity(pid: int, release: str = "r1", **other: Any) -> NodeIdentity:
    given = {
        "id": uuid4(), "app": "default", "release": release, "host": "host", "pid": pid,
        "version": "0", "executes": True, "tasks": ("t",), "queues": {"default": 1},
        "defines": True,
    }  # fmt: skip
    return NodeIdentity(**{**given, **other})


def planned(name: str = "tick", seconds: float = 1.0, **other: Any) -> ScheduleDefinition:
    job = {"queue": "default", "priority": 0, "max_attempts": 5, "history": True, "payload": {}}
    given = {
        "name": name, "spec": every(seconds=seconds).to_json(), "described": "d", "task_name": "t",
        "job": job, "missed": "all", "grace_seconds": 5.0, "next_at": T0,
    }  # fmt: skip
    return ScheduleDefinition(**{**given, **other})


def plan(
    seen: datetime | None,
    *moments: float,
    name: str = "tick",
    release: str = "r1",
    mark: int | None = None,
) -> TickPlan:
    """Fire at these seconds after T0; the next moment is a second after the last."""
    ticks = tuple(TickDecision(at(m), "fired", uuid4()) for m in moments)
    return TickPlan(name, release, seen, at(moments[-1]), at(moments[-1] + 1), ticks, mark)


async def _joined(
    a: Store,
    b: Store,
    hold: Callable[[UUID], AbstractAsyncContextManager[None]],
    forget: Callable[[str], Awaitable[None]],
    heard: Callable[[], Awaitable[list[str]]],
    reports: Reports,
) -> World:
    nobody: Any = None
    sessions = [Session(s, identity(pid), nobody) for pid, s in ((1, a), (2, b), (3, b))]
    world = World(*sessions, hold, forget, reports, heard)
    for session in sessions:
        session.world = world
    await world.a.join()
    await world.b.join()
    await a.ensure_election(ELECTION, LEASE)
    return world


@asynccontextmanager
async def simulated() -> AsyncIterator[World]:
    messages: list[str] = []
    db = SimDatabase(Env().wall_now, messages.append)

    @asynccontextmanager
    async def hold(job: UUID) -> AsyncIterator[None]:
        db.locked.add(job)
        yield
        db.locked.discard(job)

    async def forget(table: str) -> None:
        getattr(db, table if hasattr(db, table) else f"{table}s").clear()

    async def heard() -> list[str]:
        found = list(messages)
        messages.clear()
        return found

    yield await _joined(SimStore(db), SimStore(db), hold, forget, heard, SimReports(db))


@asynccontextmanager
async def real(dsn: str, direct_dsn: str) -> AsyncIterator[World]:
    settings = Settings(dsn=dsn)
    stores = [Store(settings, f"contract{n}") for n in (1, 2)]

    @asynccontextmanager
    async def hold(job: UUID) -> AsyncIterator[None]:
        async with await psycopg.AsyncConnection.connect(dsn) as other:
            await other.execute("select from leasework.job where id = %s for update", [job])
            yield

    async with await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True) as user:
        await user.execute("listen leasework")

        async def forget(table: str) -> None:
            by_hand = (
                "truncate leasework.node cascade"
                if table == "node"
                else f"delete from leasework.{table}"
            )
            await user.execute(by_hand.encode())

        async def heard() -> list[str]:
            await user.execute("notify leasework, 'end'")
            found: list[str] = []
            async for note in user.notifies(timeout=10):
                if note.payload == "end":
                    break
                found.append(note.payload)
            return found

        reports = Reports(stores[0].pool)
        yield await _joined(stores[0], stores[1], hold, forget, heard, reports)
    for store in stores:
        await store.close()
