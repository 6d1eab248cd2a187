"""The stager's look at the database is also that of the rescuer and the sweeper of deadlines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leasework_lab.sim.rows import SimDatabase
from leasework_lab.sim.store import SimStore

from leasework import App, Context
from leasework.config import Settings
from leasework.duties.deadlines import DeadlineSweeper
from leasework.duties.leading import Batches, Periodic
from leasework.env import Clock, Env
from leasework.lease import messages
from leasework.lease.guard import Guard
from leasework.loops.service import Service, ServiceContext
from leasework.node import Node
from leasework.tuning import Tuning
from tests.pg.bench import Bench
from tests.support.moments import HALF_A_WEEK_AWAY, WEEK_SECONDS
from tests.support.wait import until_async

NEVER = 3600.0


def pauses_of(kind: type[Service], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pause that each tick of a service asks for, in a list that grows."""
    pauses: list[float] = []
    tick = kind.tick

    async def noted(service: Service, now: datetime | None) -> float:
        pauses.append(await tick(service, now))
        return pauses[-1]

    monkeypatch.setattr(kind, "tick", noted)
    return pauses


async def test_a_death_that_nobody_tells_the_leader_of_is_found(
    app: App, bench: Bench, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tuning, "rescue_idle_seconds", NEVER)
    receive = Node.receive

    def receive_less(node: Node, message: messages.Message) -> None:
        if message is not messages.Note.NODES_CHANGED:
            receive(node, message)

    monkeypatch.setattr(Node, "receive", receive_less)
    ran: list[int] = []

    @app.task(name="t")
    async def run() -> None:
        ran.append(1)

    await bench.claimed()
    async with app.node() as node:
        await until_async(node.leads)
        # a trigger writes the death
        await sql("delete from leasework.node where id = %(node)s", {"node": bench.node})
        await until_async(lambda: ran, 30, "the dead node's job")


async def test_a_deadline_that_is_armed_while_the_sweeper_sleeps_is_decided(
    app: App, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tuning, "sweep_seconds", NEVER)
    monkeypatch.setattr(Tuning, "follower_sweep_seconds", NEVER)
    told: list[Any] = []

    @app.task(name="page")
    async def page(breach: dict[str, Any]) -> None:
        told.append(breach)

    async with app.node() as node:
        await until_async(node.leads)
        for count in (1, 2):  # after the first one, the sweeper sleeps
            due = datetime.now(UTC) + timedelta(seconds=1)
            await app.deadline(f"backup {count}", due=due, on_breach=page)
            await until_async(lambda count=count: len(told) == count, 30, "the page")


async def test_a_follower_decides_deadlines_while_nobody_leads(
    app: App, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guard, "leads", lambda guard: False)
    pauses = pauses_of(DeadlineSweeper, monkeypatch)

    @app.task(name="page")
    async def page(breach: dict[str, Any]) -> None: ...

    due = datetime.now(UTC) + timedelta(seconds=1)
    await app.deadline("backup", due=due, on_breach=page)
    async with app.node():
        breached = "select 1 from leasework.deadlines where state = 'breached'"
        await until_async(lambda: sql(breached), 30, "the verdict")
        await until_async(lambda: pauses[-1] > 60, 30, "nothing is left to decide")
    assert max(pauses) <= Tuning.follower_sweep_seconds * 1.25


async def test_a_schedule_that_nobody_tells_the_leader_of_fires(
    app: App, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tuning, "schedule_look_seconds", NEVER)
    ran: list[datetime] = []

    @app.every(seconds=WEEK_SECONDS, anchor=HALF_A_WEEK_AWAY, name="weekly")
    @app.task(name="t")
    async def run(ctx: Context) -> None:
        ran.append(ctx.scheduled_for)

    pauses = pauses_of(Periodic, monkeypatch)
    async with app.node():
        await until_async(lambda: sql("select 1 from leasework.schedule"))
        await until_async(lambda: pauses and pauses[-1] > 60, 30, "it sleeps")
        await sql("update leasework.schedule set next_at = now()")
        await until_async(lambda: ran, 30, "the moment")


async def test_a_look_at_the_batches_that_a_fault_held_up_delays_the_next_one_by_seconds() -> None:
    """Found by the campaign: one that hung for nine seconds was followed by none for ninety."""

    class Held(Clock):
        at = 1000.0

        def boot_now(self) -> float:
            return self.at

    clock = Held()

    class Slow(SimStore):
        async def end_batches(self, now: Any) -> tuple[int, bool]:
            clock.at += 9.0
            return 0, True

    store: Any = Slow(SimDatabase(lambda: datetime.now(UTC)))
    nothing: Any = lambda *_, **__: None  # noqa: E731
    context = ServiceContext(Settings(), Env(clock), nothing, store, store)
    assert await Batches(context, nothing).tick(None) <= 10.0
