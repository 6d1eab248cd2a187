"""Several campaigns in a row, judged together: the ten-minute gate and the soak."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from leasework.config import Settings
from leasework_lab.chaos.campaign import Order, Result, Say, run
from leasework_lab.chaos.counts import GATE, SOAK, Counts, missing, missing_of_one

LOAD = 2.0
"""Minimum load average for the run in which nothing may change hands without a fault."""
_BURNERS = 3
_BURN = """
import os, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True).start()
while True:
    pass
"""
ROTATION = ("process", "network", "database", "all")
CALM_SECONDS = 60.0
FAULT_SECONDS = 65.0
DRAIN_SECONDS = 35.0
_SOAK_ROUNDS = 12
_MORE_RUNS = 3
"""Extra runs if too little happened: chance decides how often, say, a fence refuses a write."""
VERSIONS = ("18", "16", "15")


@dataclass
class Verdict:
    """``void``: why the runs prove nothing, in words."""

    results: list[Result]
    total: Counts
    void: list[str]

    @property
    def exit_code(self) -> int:
        """0 every promise held, 1 a promise was broken, 3 void or unknown."""
        if any(result.violations for result in self.results):
            return 1
        return 3 if self.void or any(result.unknown for result in self.results) else 0


async def one(order: Order, say: Say) -> Verdict:
    """Run a single campaign."""
    result = await run(order, say)
    own = not order.plan.target
    void = missing_of_one(result.counts, order.profile, order.seconds, own)
    return Verdict([result], result.counts, void)


async def gate(order: Order, say: Say) -> Verdict:
    """Run 60 s without faults on a busy machine, then each profile for 65 s. If that showed too
    little, run all faults at once, up to three more times."""
    return await _several(order, say, ROTATION, GATE)


async def soak(order: Order, say: Say) -> Verdict:
    """The same for an hour: each round on another PostgreSQL, the last with the default lease."""
    return await _several(order, say, ROTATION * _SOAK_ROUNDS, SOAK, VERSIONS)


async def _several(
    order: Order,
    say: Say,
    profiles: Sequence[str],
    minimum: Counts,
    versions: Sequence[str] = (),
) -> Verdict:
    calm = replace(order, profile="none", seconds=CALM_SECONDS, drain_seconds=DRAIN_SECONDS)
    with ExitStack() as stack:
        if os.getloadavg()[0] < 2 * LOAD:
            _burn(stack)
        results = [await run(_kept_apart(calm, "0-none"), say)]
    _tell(results[-1], say)
    void = []
    if results[0].campaign.load <= LOAD:
        void.append(f"the load average without faults was {results[0].campaign.load:.1f}")
    for number, profile in enumerate(profiles):
        this = replace(calm, profile=profile)
        if versions and not order.dsn:
            this = replace(this, postgres=versions[number // len(ROTATION) % len(versions)])
        if versions and number >= len(profiles) - len(ROTATION):
            this = replace(this, recover_within=Settings.recover_within)
        results.append(await _with_faults(this, number, say))
    for number in range(len(profiles), len(profiles) + _MORE_RUNS):
        if missing(_shown(results), minimum):
            say("too little happened; running it again")
            results.append(await _with_faults(replace(calm, profile="all"), number, say))
    total = _shown(results)
    return Verdict(results, total, void + missing(total, minimum))


async def _with_faults(calm: Order, number: int, say: Say) -> Result:
    this = replace(calm, seconds=FAULT_SECONDS, seed=calm.seed * 1000 + number)
    result = await run(_kept_apart(this, f"{number + 1}-{this.profile}"), say)
    _tell(result, say)
    return result


def _shown(results: list[Result]) -> Counts:
    """The counts of the runs with faults; the one without proves nothing about them."""
    return sum((result.counts for result in results[1:]), Counts())


def _kept_apart(order: Order, name: str) -> Order:
    return replace(order, keep=order.keep / name if order.keep else None)


def _tell(result: Result, say: Say) -> None:
    for text in result.violations:
        say(f"VIOLATION {text} (profile {result.campaign.profile}, seed {result.campaign.seed})")


def _burn(stack: ExitStack) -> None:
    """Create load until we end, in whatever way."""
    for _ in range(_BURNERS):
        burner = subprocess.Popen([sys.executable, "-c", _BURN], stdin=subprocess.PIPE)
        stack.callback(burner.wait)
        stack.callback(burner.kill)


def play(kind: str, order: Order, say: Say) -> Verdict:
    """Run ``one``, ``gate`` or ``soak`` in an event loop of its own."""
    games = {"one": one, "gate": gate, "soak": soak}
    return asyncio.run(games[kind](order, say))
