"""One campaign: processes start, faults are done, everything heals, and all is read and judged."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from leasehold.app.certify import Certifier
from leasehold.config import MIN_RECOVER_WITHIN, Settings
from leasehold.env import Env, seeded
from leasehold.errors import LeaseholdError, Unavailable
from leasehold_lab.chaos import tables
from leasehold_lab.chaos.app import NAME
from leasehold_lab.chaos.check_processes import as_told
from leasehold_lab.chaos.checkers import Check, judge
from leasehold_lab.chaos.counts import Counts, count
from leasehold_lab.chaos.database import Server
from leasehold_lab.chaos.faults import Faults
from leasehold_lab.chaos.fleet import Fleet, Plan
from leasehold_lab.chaos.history import Campaign
from leasehold_lab.chaos.tables import Tables
from leasehold_lab.chaos.watch import Watcher

JOIN_SECONDS = 60.0
_POLL_SECONDS = 0.1
_QUIET_SECONDS = 3.0
_EVERY = {"process": 0.6, "network": 0.8, "database": 1.0, "all": 0.7, "none": 1.0}
"""Seconds between two faults, on average."""

Say = Callable[[str], None]


@dataclass
class Order:
    """What is wanted. ``dsn`` empty: a PostgreSQL of its own, to which all can be done."""

    profile: str = "all"
    seed: int = 1
    seconds: float = 65.0
    """With faults."""
    drain_seconds: float = 35.0
    dsn: str = ""
    postgres: str | None = None
    """The major version of a server of its own; None: the newest."""
    recover_within: float = MIN_RECOVER_WITHIN
    """Of the campaign's own application, in seconds."""
    plan: Plan = field(default_factory=Plan)
    aim: Sequence[str] = ()
    """Only these faults, by name; empty: those of the profile."""
    every: float | None = None
    """Seconds between two faults, on average."""
    settings: Settings | None = None
    """Of somebody's application (``plan.target``)."""
    keep: Path | None = None
    """Histories and logs go there; None: they are removed."""


@dataclass
class Result:
    campaign: Campaign
    tables: Tables | None
    checks: list[Check]
    counts: Counts
    settings: Settings
    logs: dict[str, str] = field(default_factory=dict)
    """The end of the log of each process that did not end as it was told to."""
    postgres: str = ""
    """The version of the campaign's own server; empty: somebody else's."""

    @property
    def violations(self) -> list[str]:
        return [f"{check.name}: {text}" for check in self.checks for text in check.violations]

    @property
    def unknown(self) -> bool:
        return any(check.unknown for check in self.checks)


async def run(order: Order, say: Say = lambda text: None) -> Result:
    """Play it and judge it. Raises what the database says when it cannot even begin."""
    folder = order.keep or Path(tempfile.mkdtemp(prefix="lh-campaign-"))
    folder.mkdir(parents=True, exist_ok=True)
    server = None if order.dsn else await asyncio.to_thread(Server.start, order.postgres)
    try:
        with _silence():
            return await _play(order, folder, server, say)
    finally:
        if server:
            await asyncio.to_thread(server.close)
        if order.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _silence() -> Iterator[None]:
    """What the parent itself logs of its own services is no news."""
    logger, nothing = logging.getLogger("leasehold"), logging.NullHandler()
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(nothing)
    try:
        yield
    finally:
        logger.propagate = propagate
        logger.removeHandler(nothing)


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
    """Somebody leads. Raises Unavailable when nobody does for a minute."""
    give_up_at = env.boot_now() + JOIN_SECONDS
    while not (watcher.row and fleet.by_pid(watcher.row.pid)):
        fleet.raise_broken()
        if env.boot_now() > give_up_at:
            raise Unavailable(
                f"no process of the campaign leads after {JOIN_SECONDS:g} s",
                do="Do the workers start? Is there another leader of the same name?",
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _drain(order: Order, watcher: Watcher, env: Env, settings: Settings) -> bool:
    """Until every job has finished, or the time is up. Somebody's application may have jobs that
    wait for another day: it is given the time in which dead nodes' jobs must run again."""
    give_up_at = env.boot_now() + order.drain_seconds
    if order.plan.target:
        await asyncio.sleep(min(order.drain_seconds, settings.recover_within * 2))
        return True
    # whatever the last fault left behind is dead by then
    not_before = env.boot_now() + settings.timings.failover
    quiet_since: float | None = None
    while env.boot_now() < give_up_at:
        with suppress(LeaseholdError):
            enqueued, ticks = await watcher.open_jobs()
            # a schedule of each second has a job in hand now and then
            still = enqueued == 0 and ticks <= 2
            now = env.boot_now()
            quiet_since = (quiet_since or now) if still else None
            if quiet_since and now - quiet_since > _QUIET_SECONDS and now > not_before:
                return True
        await asyncio.sleep(_POLL_SECONDS)
    return False
