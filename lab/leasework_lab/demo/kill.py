"""Kills the leader with kill -9 while it runs jobs, and measures what that costs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from leasework.cli.output import counted
from leasework_lab.demo import scorecard
from leasework_lab.demo.app import NAME
from leasework_lab.demo.fleet import Worker
from leasework_lab.demo.scorecard import Death
from leasework_lab.demo.show import pid_of
from leasework_lab.demo.stage import Stage

_EVERY_SECONDS = 20.0
_WANTED_SECONDS = 3.0
"""How long to wait for a leader that runs several jobs; after that, one job is enough."""
_LEAST_WANTED_SECONDS = 5.0
_RESTART_SECONDS = 1.5
_SLACK_SECONDS = 5.0


async def kill_leaders(stage: Stage, first_at: float, *, again: bool) -> None:
    """Kill a leader ``first_at`` seconds after the start; with ``again``, another one every 20
    seconds until the run ends."""
    await stage.pause(first_at - stage.seconds)
    while not stage.stop.is_set():
        await _kill_leader(stage)
        if not again:
            return
        await stage.pause(_EVERY_SECONDS)


async def _kill_leader(stage: Stage) -> None:
    stage.hunting = True
    busy = await busy_leader(stage)
    stage.hunting = False
    if busy is None:
        if not stage.stop.is_set():
            stage.troubles.append("there was no leader with running jobs to kill")
        return
    worker, term = busy
    stage.killing = True
    death = await kill_process(stage, worker, term)
    stage.deaths.append(death)
    place = len(stage.deaths) - 1
    cut = scorecard.interrupted(death, await stage.demo.evidence.runs(death.held))
    stage.tell(
        f"killed leader pid {worker.pid} (kill -9, term {term}) while it ran "
        f"{counted(len(cut), 'job')}"
    )
    limit = stage.demo.app.settings.recover_within + _SLACK_SECONDS
    took_over = await stage.until(limit, lambda: next_term(stage, term))
    if took_over:
        number, holder, at = took_over
        death = stage.deaths[place] = replace(death, led_again_at=at)
        seconds = scorecard.takeover(death)
        stage.tell(f"pid {pid_of(holder)} leads after {seconds} s (term {number})")
    stage.killing = False
    recovered = await stage.until(limit, lambda: _recovery(stage, death))
    if recovered:
        stage.tell(
            f"its {counted(len(cut), 'job')} had started again elsewhere after {recovered} s"
        )
    await stage.pause(_RESTART_SECONDS)
    if not stage.stop.is_set():
        worker = await stage.fleet.spawn(worker.release)
        stage.tell(f"started pid {worker.pid} in its place")


async def busy_leader(stage: Stage) -> tuple[Worker, int] | None:
    """The leader and its term, at a moment when it runs jobs that take seconds."""

    async def look(wanted: int) -> tuple[Worker, int] | None:
        worker, term = await stage.leader()
        if worker is None:
            return None
        _, slow = (await stage.demo.evidence.look(1)).running.get(worker.worker_id, (0, 0))
        return (worker, term) if slow >= wanted else None

    for seconds, wanted in ((_WANTED_SECONDS, 2), (_LEAST_WANTED_SECONDS, 1)):
        found = await stage.until(seconds, partial(look, wanted), or_stop=True)
        if found:
            return found
    return None


async def kill_process(stage: Stage, worker: Worker, term: int) -> Death:
    """Send SIGKILL and certify the death. The time of the kill is by the database's clock, which is
    read just before. The reading is already old when it arrives, so durations counted from the
    kill are never too short."""
    now = await stage.database_now()
    asked_at = stage.demo.app.env.boot_now()
    killed_at = stage.fleet.kill(worker)
    await worker.process.wait()
    held = await stage.demo.evidence.held(worker.identity)
    stage.fleet.certify(worker)
    at = now + timedelta(seconds=killed_at - asked_at)
    return Death(worker.worker_id, at, term, held)


async def next_term(stage: Stage, term: int) -> tuple[int, str, datetime] | None:
    """The first term after this one: number, holder, time of acquisition."""
    reports = await stage.demo.app.reports()
    later = [row for row in await reports.terms(NAME, 20) if row.term > term]
    if not later:
        return None
    row = min(later, key=lambda row: row.term)
    return row.term, row.holder, row.acquired_at


async def _recovery(stage: Stage, death: Death) -> float | None:
    return scorecard.recovery(death, await stage.demo.evidence.runs(death.held))
