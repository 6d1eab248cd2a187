"""One campaign: start processes, inject faults, heal everything, then read and judge the result."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from leasework.app.certify import Certifier
from leasework.config import MIN_RECOVER_WITHIN, Settings
from leasework.env import Env, seeded
from leasework.errors import LeaseworkError, Unavailable
from leasework_lab.chaos import tables
from leasework_lab.chaos.app import NAME
from leasework_lab.chaos.check_processes import as_told
from leasework_lab.chaos.checkers import Check, judge
from leasework_lab.chaos.counts import Counts, count
from leasework_lab.chaos.database import Server
from leasework_lab.chaos.faults import Faults
from leasework_lab.chaos.fleet import Fleet, Plan
from leasework_lab.chaos.history import Campaign
from leasework_lab.chaos.tables import Tables
from leasework_lab.chaos.watch import Watcher

JOIN_SECONDS = 60.0
_POLL_SECONDS = 0.1
_QUIET_SECONDS = 3.0
_EVERY = {"process": 0.6, "network": 0.8, "database": 1.0, "all": 0.7, "none": 1.0}
"""Seconds between two faults, on average."""

Say = Callable[[str], None]


@dataclass
class Order:
    """What to run. ``dsn`` empty: a PostgreSQL of its own, which any fault may hit."""

    profile: str = "all"
    seed: int = 1
    seconds: float = 65.0
    """Duration of the faults."""
    drain_seconds: float = 35.0
    dsn: str = ""
    postgres: str | None = None
    """The major version of the campaign's own server; None: the newest."""
    recover_within: float = MIN_RECOVER_WITHIN
    """For the campaign's own application, in seconds."""
    plan: Plan = field(default_factory=Plan)
    aim: Sequence[str] = ()
    """Inject only these faults, by name; empty: those of the profile."""
    every: float | None = None
    """Average seconds between two faults."""
    settings: Settings | None = None
    """The settings of a user's application (``plan.target``)."""
    keep: Path | None = None
    """Folder to keep histories and logs in; None: they are removed."""


@dataclass
class Result:
    campaign: Campaign
    tables: Tables | None
    checks: list[Check]
    counts: Counts
    settings: Settings
    logs: dict[str, str] = field(default_factory=dict)
    """The end of the log of each process that did not end as told."""
    postgres: str = ""
    """The version of the campaign's own server; empty for a user's server."""

    @property
    def violations(self) -> list[str]:
        return [f"{check.name}: {text}" for check in self.checks for text in check.violations]

    @property
    def unknown(self) -> bool:
        return any(check.unknown for check in self.checks)


async def run(order: Order, say: Say = lambda text: None) -> Result:
    """Run and judge a campaign. Raises the database's error if it cannot even begin."""
    folder = order.keep or Path(tempfile.mkdtemp(prefix="lh-campaign-"))
    folder.mkdir(parents=True, exist_ok=True)
    server = None if order.dsn else await asyncio.to_thread(Server, order.postgres)
    try:
        with _silence:
            return await _play(order, folder, server, say)
    finally:
        if server:
            await asyncio.to_thread(server.close)
        if order.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


class _Silence:
    """Suppresses the parent's own log lines about its services. Campaigns may overlap: the last one
    to end restores the logger."""

    def __init__(self) -> None:
        self._campaigns = 0
        self._propagate = True
        self._nothing = logging.NullHandler()

    def __enter__(self) -> None:
        logger = logging.getLogger("leasework")
        if self._campaigns == 0:
            self._propagate, logger.propagate = logger.propagate, False
            logger.addHandler(self._nothing)
        self._campaigns += 1

    def __exit__(self, *exc: object) -> None:
        logger = logging.getLogger("leasework")
        self._campaigns -= 1
        if self._campaigns == 0:
            logger.propagate = self._propagate
            logger.removeHandler(self._nothing)


_silence = _Silence()


def _settings(order: Order, server: Server | None) -> Settings:
    if order.settings:
        return order.settings
    dsn = server.dsn if server else order.dsn
    return Settings(dsn=dsn, name=NAME, schema=tables.SCHEMA, recover_within=order.recover_within)


async def _play(order: Order, folder: Path, server: Server | None, say: Say) -> Result:
    env, rng = Env(), seeded(order.seed)
    settings = _settings(order, server)
    if not order.plan.target:
        await tables.make_anew(settings)
    async with AsyncExitStack() as stack:
        certifier = await Certifier.begin(replace(settings))
        stack.push_async_callback(certifier.finish, 5.0)
        watcher = Watcher(settings, settings.name, env)
        stack.push_async_callback(watcher.stop)
        after_event = await watcher.last_event()
        since = await watcher.began() if order.plan.target else None
        fleet = Fleet(settings, order.plan, folder, certifier, env, rng)
        stack.push_async_callback(fleet.end)
        await fleet.start()
        watcher.start()
        say("waiting for a leader")
        await _until_it_runs(fleet, watcher, env)
        faults = Faults(fleet, server, watcher, env, rng, settings.timings.lease, order.aim)
        began_at = env.boot_now()
        say(f"{order.profile}, seed {order.seed}: {order.seconds:g} s of faults")
        every = order.every or _EVERY[order.profile]
        await faults.run(order.profile, order.seconds, every)
        healed_at, load = env.boot_now(), os.getloadavg()[0]
        say(f"{len(faults.done)} faults; draining")
        await fleet.stop("producer")
        drained = await _drain(order, watcher, env, settings)
        clock = await watcher.clock()
        stopping_at = env.boot_now()
        await fleet.stop("node")
        ended_at = env.boot_now()
        final = await watcher.final(after_event, since)
        campaign = Campaign(
            order.profile, order.seed, began_at, healed_at, ended_at, fleet.processes, faults.done,
            watcher.rows, drained, load, stopping_at, clock, not order.plan.target,
        )  # fmt: skip
        fleet.read_histories()
        logs = {
            f"{p} {p.how}, exit code {p.code}": fleet.log_tail(p)
            for p in fleet.processes
            if not as_told(p)
        }
    checks = judge(campaign, final, settings.timings)
    version = server.version if server else ""
    return Result(campaign, final, checks, count(campaign, final), settings, logs, version)


async def _until_it_runs(fleet: Fleet, watcher: Watcher, env: Env) -> None:
    """Wait until a process leads. Raises Unavailable if none does within a minute."""
    give_up_at = env.boot_now() + JOIN_SECONDS
    while not (watcher.row and fleet.by_pid(watcher.row.pid)):
        fleet.raise_broken()
        if env.boot_now() > give_up_at:
            raise Unavailable(
                f"no process of the campaign leads after {JOIN_SECONDS:g} s",
                do="Check that the workers start, and that no other leader has the same name",
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _drain(order: Order, watcher: Watcher, env: Env, settings: Settings) -> bool:
    """Wait until every job has finished, or the time is up. A user's application may have jobs that
    wait for another day, so it only gets the time in which dead nodes' jobs must run again."""
    give_up_at = env.boot_now() + order.drain_seconds
    if order.plan.target:
        await asyncio.sleep(min(order.drain_seconds, settings.recover_within * 2))
        return True
    # by then, everything that the last fault left behind is dead
    not_before = env.boot_now() + settings.timings.failover
    quiet_since: float | None = None
    while env.boot_now() < give_up_at:
        with suppress(LeaseworkError):
            enqueued, ticks = await watcher.open_jobs()
            # a schedule that fires every second has a job in progress now and then
            still = enqueued == 0 and ticks <= 2
            now = env.boot_now()
            quiet_since = (quiet_since or now) if still else None
            if quiet_since and now - quiet_since > _QUIET_SECONDS and now > not_before:
                return True
        await asyncio.sleep(_POLL_SECONDS)
    return False
