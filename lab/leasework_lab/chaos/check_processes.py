"""Checks of processes: none ends without a cause, and a clean stop leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from signal import SIGKILL, SIGTERM

from leasework import node
from leasework.config import Timings
from leasework_lab.chaos import child
from leasework_lab.chaos.check_leases import SLACK_SECONDS, hurts
from leasework_lab.chaos.history import Campaign, Process
from leasework_lab.chaos.tables import Tables

_EXIT_ERROR = 1
"""The exit status of a ``leasework worker`` that could not join or met any other error."""
_START_SECONDS = 25.0
"""Within this time a worker has joined, or has reported that it cannot."""
_INSTANT = 0.05
"""Allowed between a clock reading and the kill that follows it at the other end of a pipe."""
_ENDED = {"stopped": 0, "killed": -SIGKILL}
"""What the campaign did to a process, and the exit code that follows."""


def as_told(process: Process) -> bool:
    """Did it end as told, or by our kill? Then nothing of its own broke."""
    return process.how in _ENDED and process.code == _ENDED[process.how]


def ends(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """A process ends only if it is told to or killed, or if it must end itself."""
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
    """Work of a lost lease continued after the grace, the database was unavailable at the start,
    the watchdog ended it, or it was told to stop when nothing in it listened for that."""
    match process.code:
        case node.EXIT_FENCED:
            return any(line["event"] == "node_exits" for line in process.of("event"))
        case child.EXIT_REFUSED:
            return not any(process.of("up")) and _was_away(campaign, process)
        case code if code == -SIGKILL:
            return process.hard_exit and _watchdog_may(process, timings)
        case code if code == -SIGTERM:
            # before its first line, or after its event loop has closed
            over = not process.lines or any(process.of("left", "refused"))
            return process.how == "stopped" and over
    return False


def _watchdog_may(process: Process, timings: Timings) -> bool:
    """Each renewal postpones the watchdog to a grace after the lease's end, and fencing to two
    graces. (It waits longer if the process was stopped.)"""
    ended_at = (process.ended_at or 0.0) + _INSTANT
    renewed = [e["until"] for e in process.of("gained", "renewed") if e["of"] == "node"]
    fenced = [e["at"] for e in process.of("event") if e["event"] == "node_fenced"]
    late = bool(renewed) and ended_at >= renewed[-1] + timings.grace
    return late or bool(fenced and ended_at >= fenced[-1] + 2 * timings.grace)


def _was_away(campaign: Campaign, process: Process) -> bool:
    """Was it cut off from the database while it started, or until shortly before?"""
    ended_at = process.ended_at or campaign.ended_at
    return any(
        (hurts(fault, process) or fault.target == "database")
        and fault.start < ended_at
        and fault.end > process.started_at - SLACK_SECONDS
        for fault in campaign.faults
    )


def _may_have_had_to_end(campaign: Campaign, process: Process, timings: Timings) -> bool:
    """A user's worker writes no history: because of our faults it may have fenced itself, been
    ended by its watchdog, or not reached the database at its start."""
    if process.code in (node.EXIT_FENCED, -SIGKILL):
        return True
    ended_at = process.ended_at or campaign.ended_at
    if ended_at - process.started_at >= _START_SECONDS:
        return False
    if process.code == -SIGTERM:
        return process.how == "stopped"
    return process.code == _EXIT_ERROR and _was_away(campaign, process)


def _broken_stops(campaign: Campaign) -> Iterator[str]:
    """An undisturbed process that begins to stop finishes its stop."""
    for process in campaign.nodes():
        began = next((line["at"] for line in process.of("stopping")), None)
        if began is None or any(process.of("left")) or process.how == "did not stop":
            continue
        ended_at = process.ended_at or campaign.ended_at
        if not _hit(campaign, process, began, ended_at):
            yield f"{process} began to stop but did not finish"


def _empty_places(campaign: Campaign) -> Iterator[str]:
    """Each place had a process that came up, during the faults if they lasted long enough."""
    long = campaign.healed_at - campaign.began_at > _START_SECONDS
    last = campaign.healed_at if long else campaign.ended_at
    came = {p.name for p in campaign.processes if any(e["at"] < last for e in p.of("up"))}
    for name in dict.fromkeys(process.name for process in campaign.processes):
        if name not in came:
            yield f"no process of {name} ever came up"


def clean_stops(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """A process that stops cleanly and undisturbed leaves nothing to rescue."""
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
                    yield f"{dead} stopped cleanly, but {line['fields']['job']} was rescued"


def _hit(campaign: Campaign, process: Process, start: float, end: float) -> bool:
    """Did a fault hit it or the database during its stop? What an earlier identity of it left
    behind is not the stop's fault either."""
    lives = sum(line["event"] == "node_started" for line in process.of("event"))
    mine = (process.name, "database")
    return lives > 1 or any(
        fault.target in mine and fault.start < end and fault.end > start - 2
        for fault in campaign.faults
        if fault.kind not in ("restart", "clock")
    )


def services(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """No service meets an unexpected error."""
    for process in campaign.nodes():
        for line in process.of("event"):
            yield 1
            if line["event"] == "service_failed":
                yield f"{process}: {line['fields']}"
        for line in process.of("duties_broke"):
            yield f"{process}: its duties failed with {line['error']}"


def still(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """Nobody loses leadership without a fault."""
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
