"""Checks of processes: that none ends for no reason, and that a stop leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from signal import SIGKILL

from leasehold.chaos.check_leases import hurts
from leasehold.chaos.child import EXIT_REFUSED
from leasehold.chaos.history import Campaign, Line, Process
from leasehold.config import Timings
from leasehold.node import EXIT_FENCED
from leasehold.pg.chaos import Tables

_BY_ITSELF = "ended by itself: "
_EXIT_ERROR = 1
"""Of ``leasehold worker`` that could not join, and of every other trouble."""
_START_SECONDS = 25.0
"""Within this a worker has joined, or has said that it cannot."""


def ends(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """Processes end when they are told or killed, or end themselves because they must."""
    had_to = _had_to_end if campaign.own_tasks else _may_have_had_to_end
    for process in campaign.processes:
        yield 1
        if process.how == "did not stop":
            yield f"{process} did not stop when it was told to"
        elif process.how.startswith(_BY_ITSELF) and not had_to(campaign, process):
            yield f"{process} {process.how}"


def _had_to_end(campaign: Campaign, process: Process) -> bool:
    """Work of a lost lease went on after the grace, or the database was away at the start."""
    if process.how == f"{_BY_ITSELF}{EXIT_FENCED}":
        return any(line["event"] == "node_exits" for line in process.of("event"))
    if process.how == f"{_BY_ITSELF}{-SIGKILL}":
        return _stood_still(process)
    return process.how == f"{_BY_ITSELF}{EXIT_REFUSED}" and not any(process.of("up"))


def _may_have_had_to_end(campaign: Campaign, process: Process) -> bool:
    """Somebody's worker writes no history: it fenced itself, its watchdog ended it, or it could
    not reach the database at its start, because of what we did to it."""
    if process.how in (f"{_BY_ITSELF}{EXIT_FENCED}", f"{_BY_ITSELF}{-SIGKILL}"):
        return True
    ended_at = process.ended_at or campaign.ended_at
    young = ended_at - process.started_at < _START_SECONDS
    cut_off = any(
        hurts(fault, process) and fault.start < ended_at and fault.end > process.started_at
        for fault in campaign.faults
    )
    return process.how == f"{_BY_ITSELF}{_EXIT_ERROR}" and young and cut_off


def _stood_still(process: Process) -> bool:
    """The watchdog ends a process whose guard did not get to renew for a whole lease."""
    last: Line | None = process.lines[-1] if process.lines else None
    ended_at = process.ended_at or 0.0
    return last is not None and ended_at - last["at"] > 1.0


def clean_stops(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """What stops in good order, with nothing done to it, leaves nothing to be rescued."""
    left: dict[int, Process] = {}
    for process in campaign.nodes():
        began = next((line["at"] for line in process.of("stopping")), None)
        ended = next((line["at"] for line in process.of("left")), None)
        if began is None or ended is None or _hit(campaign, process, began, ended):
            continue
        yield 1
        left[process.pid] = process
    for process in campaign.nodes():
        for line in process.of("event"):
            if line["event"] == "job_rescued":
                dead = left.get(int(line["fields"]["dead"].split(":")[1]))
                if dead and not any(True for _ in dead.of("too_late")):
                    yield f"{dead} left in good order, and {line['fields']['job']} was rescued"


def _hit(campaign: Campaign, process: Process, start: float, end: float) -> bool:
    """Was anything done to it, or to the database, that a stop has to suffer from? What was left
    of its lives under other identities before is not its stop's either."""
    lives = sum(line["event"] == "node_started" for line in process.of("event"))
    mine = (process.name, "database")
    return lives > 1 or any(
        fault.target in mine and fault.start < end and fault.end > start - 2
        for fault in campaign.faults
        if fault.kind not in ("restart", "clock")
    )


def services(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """No service met with what it did not expect."""
    for process in campaign.nodes():
        for line in process.of("event"):
            yield 1
            if line["event"] == "service_failed":
                yield f"{process}: {line['fields']}"


def still(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """Without faults nobody loses a leadership."""
    if campaign.profile == "none":
        lost = [
            f"{process}: {line['event']} {line['fields']}"
            for process in campaign.nodes()
            for line in process.of("event")
            if line["event"] in ("lease_lost", "lease_resigned", "node_fenced")
            and line["at"] < campaign.healed_at
        ]
        yield 1
        yield from lost
