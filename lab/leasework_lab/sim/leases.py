"""A user's leader and lock in every simulated process. There must be one believer, whatever process
is paused, cut off or promoted, and whatever rows somebody deletes."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leasework.config import LEADER_PREFIX, LOCK_PREFIX
from leasework.env import Rng
from leasework.errors import LeaseworkError
from leasework.lease.bids import Bid, Patience

if TYPE_CHECKING:
    from leasework_lab.sim.checkers import Watch
    from leasework_lab.sim.host import SimNode
    from leasework_lab.sim.process import Process

LEADER, LOCK = LEADER_PREFIX + "engine", LOCK_PREFIX + "x"
_LONGEST_SECONDS = {LEADER: 15.0, LOCK: 2.0}
"""The longest time for which a bid holds it."""
_RELEASE_SECONDS = 2.0
_PAUSE_SECONDS = {LEADER: 0.5, LOCK: 6.0}


@dataclass(eq=False, slots=True)
class Wish:
    """One bid of one process."""

    bid: Bid
    process: Process
    node: SimNode

    def believed(self) -> bool:
        """Does it believe now, by its own clock? A paused process still believes."""
        process = self.process
        return process.alive and process.node is self.node and self.bid.valid()


class Leases:
    """``used`` False: this run does without them."""

    def __init__(self, watch: Watch, rng: Rng) -> None:
        self._watch = watch
        self._rng = rng
        self._wishes: dict[str, set[Wish]] = {LEADER: set(), LOCK: set()}
        self.used = rng.random() < 0.5
        self.granted: Counter[str] = Counter()

    def begin(self, process: Process, node: SimNode) -> None:
        """The process's node has joined. Called in the node's place."""
        if self.used:
            for name in self._wishes:
                task = asyncio.ensure_future(self._want(name, process, node))
                node.contending.add(task)
                task.add_done_callback(node.on_end)

    async def _want(self, name: str, process: Process, node: SimNode) -> None:
        while process.alive and process.node is node:
            await asyncio.sleep(self._rng.random() * _PAUSE_SECONDS[name])
            patience = Patience.WAIT
            if name == LOCK:
                patience = self._rng.choice([Patience.WAIT, Patience.WAIT, *Patience])
            bid = Bid(name, node.env, patience, has_body=True)
            wish = Wish(bid, process, node)
            self._wishes[name].add(wish)
            try:
                node.in_guard(node.guard.contests.ask, bid)
                with suppress(LeaseworkError):  # it stops, or cannot reach the database
                    if await asyncio.wrap_future(bid.answer) is not None:
                        await self._hold(name, wish)
            finally:
                self._wishes[name].discard(wish)

    async def _hold(self, name: str, wish: Wish) -> None:
        self.granted[name] += 1
        self._one_believes(name)
        bid, node = wish.bid, wish.node
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rng.random() * _LONGEST_SECONDS[name]):
                await bid.lost.wait()
        if bid.lost.is_set():
            await asyncio.sleep(self._rng.random())  # its work takes a while to end
        node.in_guard(node.guard.contests.done, bid)
        with suppress(TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                await asyncio.wrap_future(bid.released)

    # -- what must hold --------------------------------------------------------------------------
    def acquired(self, name: str, node: Any) -> None:
        """A statement acquired it for this node: from now on, nobody else may believe."""
        if name in self._wishes:
            believers = [w.process for w in self._wishes[name] if w.believed()]
        else:
            believers = [p for p in self._watch.processes if p.leads() and not p.is_node(node)]
        if believers:
            self._watch.wrong(f"OneBeliever: {name} was taken over, but {believers} believe in it")

    def never_had(self, before: Counter[str]) -> tuple[str, float] | None:
        """A name that nobody has held since or holds now, and how long it may have been left alone,
        in seconds."""
        for name, wishes in self._wishes.items():
            had = self.granted[name] > before[name] or any(wish.believed() for wish in wishes)
            if self.used and not had:
                return name, _PAUSE_SECONDS[name] + _RELEASE_SECONDS
        return None

    def _one_believes(self, name: str) -> None:
        believers = [wish.process for wish in self._wishes[name] if wish.believed()]
        if len(believers) > 1:
            self._watch.wrong(f"OneBeliever: {believers} hold {name} at once")

    # -- faults ----------------------------------------------------------------------------------
    def forget(self) -> None:
        """Delete a row, as somebody might by hand."""
        rows = self._watch.db.leaders
        if rows:
            name = self._rng.choice(sorted(rows))
            del rows[name]
            self._watch.counts["rows deleted"] += 1
            self._watch.note("somebody", f"deletes the row of {name}")
