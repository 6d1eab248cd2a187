"""What must have come to rest before a run may end: every process takes part again, every
schedule fires, nothing is held by the dead, and what is completed has had its effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from leasehold_lab.sim.rows import SimDatabase

if TYPE_CHECKING:
    from leasehold_lab.sim.process import Process

EFFECT = "effect"
"""The task that is completed in a transaction with its effect."""
TICK_LATE = timedelta(seconds=3)
"""A schedule of each second fires within this, where nothing is wrong."""


def restless(db: SimDatabase, processes: Sequence[Process]) -> Iterator[str]:
    """What is not as it should be at the end, in words."""
    for process in processes:
        if why := _not_at_work(db, process):
            yield f"NoStuck: {process} {why}"
    if open_deaths := [node for node, death in db.deaths.items() if not death.settled]:
        yield f"NoStuck: {len(open_deaths)} deaths are not settled"
    for node in db.nodes:
        if not any(process.is_node(node) for process in processes):
            yield f"NoStuck: node {node} is dead, and its row is there"
    yield from _silent_schedules(db, processes)


def _not_at_work(db: SimDatabase, process: Process) -> str | None:
    """All have been started again by now; a clean stop ends with a new start, too."""
    if not process.alive:
        return "was not started again"
    if not process.joined:
        return "has not joined, or its stop has not ended"
    trusted = process.trusts()
    if trusted is None or trusted[1] <= process.boot_now():
        return "holds no lease of its own"
    return None if trusted[0] in db.nodes else "trusts a lease that is in no row"


def _silent_schedules(db: SimDatabase, processes: Sequence[Process]) -> Iterator[str]:
    """Each schedule of the code is there, and its ledger reaches up to now: also one that never
    fired, or that fires no more, is silent."""
    planned = {schedule.name for process in processes for schedule in process.plan.planned}
    for name in planned - {name for _, name in db.schedules}:
        yield f"TickOnce: schedule {name} is planned, and in no row"
    newest: dict[tuple[str, str], datetime] = {}
    for (app, name, at), tick in db.ticks.items():
        newest[app, name] = max(tick.until or at, newest.get((app, name), at))
    now = db.clock()
    for key, row in db.schedules.items():
        last = newest.get(key)
        if not row.paused and (last is None or last < now - TICK_LATE):
            yield f"TickOnce: {key[1]} fires no more: its ledger ends with {last}, and it is {now}"


def without_effect(db: SimDatabase, effects: Sequence[tuple[UUID, int]]) -> Iterator[str]:
    """Whoever says that it is done must have done it."""
    had = {job for job, _ in effects}
    for job, done in db.done.items():
        if done.job.task == EFFECT and done.state == "completed" and job not in had:
            yield f"EffectOnce: {job} is completed, and its effect is nowhere"
