"""What must be at rest before a run may end: every process has joined again, every schedule fires,
no dead node holds anything, and every completed job has had its effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from leasework_lab.sim.rows import SimDatabase

if TYPE_CHECKING:
    from leasework_lab.sim.process import Process

EFFECT = "effect"
"""The task whose handler completes its job in a transaction with its effect."""
TICK_LATE = timedelta(seconds=3)
"""A healthy schedule of every second fires within this time."""


def restless(db: SimDatabase, processes: Sequence[Process]) -> Iterator[str]:
    """What is not at rest, in sentences."""
    for process in processes:
        if why := _not_at_work(db, process):
            yield f"NoStuck: {process} {why}"
    if open_deaths := [node for node, death in db.deaths.items() if not death.settled]:
        yield f"NoStuck: {len(open_deaths)} deaths are not settled"
    for node in db.nodes:
        if not any(process.is_node(node) for process in processes):
            yield f"NoStuck: node {node} is dead but still has a row"
    yield from _silent_schedules(db, processes)


def _not_at_work(db: SimDatabase, process: Process) -> str | None:
    """Why a process is not at work. All have restarted by now, as a clean stop is also followed
    by a start."""
    if not process.alive:
        return "was not restarted"
    if not process.joined:
        return "has not joined, or has not finished its stop"
    trusted = process.trusts()
    if trusted is None or trusted[1] <= process.boot_now():
        return "holds no lease of its own"
    return None if trusted[0] in db.nodes else "trusts a lease that has no row"


def _silent_schedules(db: SimDatabase, processes: Sequence[Process]) -> Iterator[str]:
    """Each schedule of the code has a row, and its ledger reaches up to now. A schedule that never
    fired, or fires no more, is silent."""
    planned = {schedule.name for process in processes for schedule in process.plan.planned}
    for name in planned - {name for _, name in db.schedules}:
        yield f"TickOnce: schedule {name} is planned but has no row"
    newest: dict[tuple[str, str], datetime] = {}
    for (app, name, at), tick in db.ticks.items():
        newest[app, name] = max(tick.until or at, newest.get((app, name), at))
    now = db.clock()
    for key, row in db.schedules.items():
        last = newest.get(key)
        if not row.paused and (last is None or last < now - TICK_LATE):
            yield f"TickOnce: {key[1]} fires no more: its ledger ends with {last}, at {now}"


def without_effect(db: SimDatabase, effects: Sequence[tuple[UUID, int]]) -> Iterator[str]:
    """Completed jobs that did not have their effect."""
    had = {job for job, _ in effects}
    for job, done in db.done.items():
        if done.job.task == EFFECT and done.state == "completed" and job not in had:
            yield f"EffectOnce: {job} is completed but had no effect"
