"""Checks of processes: that none ends for no reason, and that a stop leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from signal import SIGKILL, SIGTERM

from leasehold import node
from leasehold.config import Timings
from leasehold_lab.chaos import child
from leasehold_lab.chaos.check_leases import SLACK_SECONDS, hurts
from leasehold_lab.chaos.history import Campaign, Process
from leasehold_lab.chaos.tables import Tables

_EXIT_ERROR = 1
"""Of ``leasehold worker`` that could not join, and of every other trouble."""
_START_SECONDS = 25.0
"""Within this a worker has joined, or has said that it cannot."""
_INSTANT = 0.05
"""Between a clock's reading and the kill that it leads to, on two sides of a pipe."""
_ENDED = {"stopped": 0, "killed": -SIGKILL}
"""What we did to it, and how it ends then."""


def as_told(process: Process) -> bool:
    """It ended as it was told to, or was killed: nothing of its own broke."""
    return process.how in _ENDED and process.code == _ENDED[process.how]


def ends(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """Processes end when they are told or killed, or end themselves because they must."""
    had_to = _had_to_end if campaign.own_tasks else _may_have_had_to_end
    for process in campaign.processes:
        yield 1
        if process.how == "did not stop":
            yield f"{process} did not stop when it was told to"
        elif not as_told(process) and not had_to(campaign, process, timings):
            code = f", exit code {process.code}" if process.how in _ENDED else ""
            yield f"{process} {process.how}{code}"
    if campaign.own_tasks:
        yield from _broken_stops(campaign)
        yield from _empty_places(campaign)


def _had_to_end(campaign: Campaign, process: Process, timings: Timings) -> bool:
    """Work of a lost lease went on after the grace, the database was away at the start, its
    watchdog ended it, or it was told to stop where nothing in it listens to that."""
    match process.code:
        case node.EXIT_FENCED:
            return any(line["event"] == "node_exits" for line in process.of("event"))
        case child.EXIT_REFUSED:
            return not any(process.of("up")) and _was_away(campaign, process)
        case code if code == -SIGKILL:
            return process.hard_exit and _watchdog_may(process, timings)
        case code if code == -SIGTERM:
            # before its first line, or when its loop has closed
            over = not process.lines or any(process.of("left", "refused"))
            return process.how == "stopped" and over
    return False


def _watchdog_may(process: Process, timings: Timings) -> bool:
    """It is put off to a grace after the end of the lease by each renewal, and by two graces when
    the node was fenced. (Of a process that was stopped it waits for longer.)"""
    ended_at = (process.ended_at or 0.0) + _INSTANT
    renewed = [e["until"] for e in process.of("gained", "renewed") if e["of"] == "node"]
    fenced = [e["at"] for e in process.of("event") if e["event"] == "node_fenced"]
    late = bool(renewed) and ended_at >= renewed[-1] + timings.grace
    return late or bool(fenced and ended_at >= fenced[-1] + 2 * timings.grace)


def _was_away(campaign: Campaign, process: Process) -> bool:
    """Was it kept from the database while it started, or is that just over?"""
    ended_at = process.ended_at or campaign.ended_at
    return any(
        (hurts(fault, process) or fault.target == "database")
        and fault.start < ended_at
        and fault.end > process.started_at - SLACK_SECONDS
        for fault in campaign.faults
    )


def _may_have_had_to_end(campaign: Campaign, process: Process, timings: Timings) -> bool:
    """Somebody's worker writes no history: it fenced itself, its watchdog ended it, or it could
    not reach the database at its start, because of what we did to it."""
    if process.code in (node.EXIT_FENCED, -SIGKILL):
        return True
    ended_at = process.ended_at or campaign.ended_at
    if ended_at - process.started_at >= _START_SECONDS:
        return False
    if process.code == -SIGTERM:
        return process.how == "stopped"
    return process.code == _EXIT_ERROR and _was_away(campaign, process)


def _broken_stops(campaign: Campaign) -> Iterator[str]:
    """Whoever begins to stop, and is left alone, comes to its end."""
    for process in campaign.nodes():
        began = next((line["at"] for line in process.of("stopping")), None)
        if began is None or any(process.of("left")) or process.how == "did not stop":
            continue
        ended_at = process.ended_at or campaign.ended_at
        if not _hit(campaign, process, began, ended_at):
            yield f"{process} began to stop, and broke off"


def _empty_places(campaign: Campaign) -> Iterator[str]:
    """Each place had a process that came up, while there were faults if those took long."""
    long = campaign.healed_at - campaign.began_at > _START_SECONDS
    last = campaign.healed_at if long else campaign.ended_at
    came = {p.name for p in campaign.processes if any(e["at"] < last for e in p.of("up"))}
    for name in dict.fromkeys(process.name for process in campaign.processes):
        if name not in came:
            yield f"no process of {name} ever came up"


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
        for line in process.of("duties_broke"):
            yield f"{process}: its duties ended with {line['error']}"


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
