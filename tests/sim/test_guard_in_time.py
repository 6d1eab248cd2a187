"""The guard fences itself at its deadline, whatever the calls do at that moment."""

from __future__ import annotations

import asyncio

import pytest
from leasework_lab.sim.env import DatabaseClock, SimClock, sim_env
from leasework_lab.sim.link import FaultyStore, Link, Server, Weather
from leasework_lab.sim.loop import VirtualLoop
from leasework_lab.sim.rows import SimDatabase
from leasework_lab.sim.store import SimStore

from leasework.config import Timings
from leasework.env import Env, seeded
from leasework.lease import host as protocol, messages
from leasework.lease.guard import Guard
from leasework.model.lease import Phase
from leasework.store.nodes import NodeIdentity


class Host(protocol.Host):
    """Notes when it was fenced; everything else is of no interest here."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.fenced_at: float | None = None

    def new_identity(self) -> NodeIdentity:
        return NodeIdentity(self.env.new_id(), "a", "r", "h", 1, "0", False, (), {})

    def send(self, message: messages.Message) -> None:
        if isinstance(message, messages.Fenced):
            self.fenced_at = self.fenced_at or self.env.boot_now()


@pytest.mark.parametrize("seed", range(30))
def test_a_guard_without_answers_fences_itself_at_its_deadline(seed: int):
    """Found by the simulation: after a renewal without an answer it slept past the deadline."""
    loop, rng, timings = VirtualLoop(), seeded(seed), Timings.derive(9)
    env = sim_env(SimClock(loop, 1 + rng.uniform(-1e-3, 1e-3), 100.0), rng, "h", 1)
    server = Server(loop, SimStore(SimDatabase(DatabaseClock(loop))), lambda *args: None)
    link, host = Link(server, rng, Weather()), Host(env)

    async def main() -> float:
        guard = Guard(
            lambda role: FaultyStore.over(link, 1.0), env, timings, lambda *a, **b: None, host
        )
        task = asyncio.ensure_future(guard.run())
        lease = guard.membership.lease
        while lease.phase is not Phase.HOLDER or loop.time() < 3 + rng.random():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        link.cut = "requests" if seed % 2 else "answers"
        while host.fenced_at is None:
            deadline = lease.deadline
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
        return host.fenced_at - deadline

    late = loop.run_until_complete(main())
    loop.close()
    assert 0 <= late < 0.02
