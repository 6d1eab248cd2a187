"""Checks of runs: every outcome in the database must have happened in a process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from leasework.config import Limits, Timings
from leasework_lab.chaos.app import AT_ONCE
from leasework_lab.chaos.check_leases import beliefs
from leasework_lab.chaos.history import Campaign
from leasework_lab.chaos.tables import Tables

_IN_A_TRANSACTION = ("effect", "stubborn")
"""Tasks whose handlers complete their jobs in a transaction."""
Runs = dict[str, set[int]]
"""The tokens of each job's claims."""


def ran(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """A completed job ran to its end under the claim that completed it: that line is written before
    the outcome. Nothing in a campaign cancels jobs, and only a job that was cut off may be
    quarantined."""
    ended, completing = _tokens(campaign, "end"), _tokens(campaign, "completing")
    cut_off = _cut_off(campaign)
    for job in tables.jobs:
        yield 1
        runs = completing if job.task in _IN_A_TRANSACTION else ended
        if job.state == "completed" and job.token not in runs[str(job.id)]:
            yield f"{job.task} {job.id} is completed under {job.token} but did not run to its end"
        if job.state == "cancelled":
            yield f"{job.task} {job.id} is cancelled, but nobody requested that"
        if job.state == "quarantined":
            if job.crashes < Limits.max_crashes:
                yield f"{job.task} {job.id} is quarantined after {job.crashes} crashes"
            if not cut_off[str(job.id)]:
                yield f"{job.task} {job.id} is quarantined, but no run of it was cut off"


def limited(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """No more jobs of the limit run at once than it allows. A run counts until it ends, or until
    its node's lease ends: then its job may be rescued, and another take its place."""
    moments: list[tuple[float, int, str]] = []
    for process in campaign.nodes():
        held = {span.me: span.end for span in beliefs(process, "node")}
        ends = {(line["job"], line["token"]): line["at"] for line in process.of("end")}
        for line in process.of("start"):
            if line["task"] == "limited":
                end = ends.get((line["job"], line["token"]), process.ended_at or campaign.ended_at)
                until = max(line["at"], min(end, held.get(line["node"], 0.0)))
                moments += [(line["at"], 1, line["ref"]), (until, -1, line["ref"])]
    running = 0
    for at, change, ref in sorted(moments):
        running += change
        yield max(change, 0)
        if running > AT_ONCE and change > 0:
            yield f"{ref} began at {at:.3f} as number {running} of at most {AT_ONCE}"


def _tokens(campaign: Campaign, kind: str) -> Runs:
    found: Runs = defaultdict(set)
    for process in campaign.nodes():
        for line in process.of(kind):
            if kind != "end" or line["how"] == "ended":
                found[line["job"]].add(line["token"])
    return found


def _cut_off(campaign: Campaign) -> Runs:
    """Runs that did not end, or whose node lost its lease before it could report their end. (A
    start is recorded before the handler's first line, and its end after the last line. Not every
    crash that counts is therefore one of these.)"""
    found: Runs = defaultdict(set)
    for process in campaign.nodes():
        ended = {(line["job"], line["token"]) for line in process.of("end")}
        left = {span.me for span in beliefs(process, "node") if span.why == "stopped"}
        for line in process.of("start"):
            if (line["job"], line["token"]) not in ended or line["node"] not in left:
                found[line["job"]].add(line["token"])
    return found
