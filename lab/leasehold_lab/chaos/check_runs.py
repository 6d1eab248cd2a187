"""Checks of runs: what the database calls an end must have happened in a process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from leasehold.config import Limits, Timings
from leasehold_lab.chaos.check_leases import beliefs
from leasehold_lab.chaos.history import Campaign
from leasehold_lab.chaos.tables import Tables

_IN_A_TRANSACTION = ("effect", "stubborn")
"""Tasks whose jobs are completed in a transaction of their handler."""
Runs = dict[str, set[int]]
"""By job: the tokens of its claims."""


def ran(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """A completed job was run to its end under the claim that completed it: the line is written
    before the outcome can be. Nothing in a campaign cancels, and only what was cut off is given
    up as poison."""
    ended, completing = _tokens(campaign, "end"), _tokens(campaign, "completing")
    cut_off = _cut_off(campaign)
    for job in tables.jobs:
        yield 1
        runs = completing if job.task in _IN_A_TRANSACTION else ended
        if job.state == "completed" and job.token not in runs[str(job.id)]:
            yield f"{job.task} {job.id} is completed under {job.token}, and did not run to its end"
        if job.state == "cancelled":
            yield f"{job.task} {job.id} is cancelled, and nobody asked for that"
        if job.state == "quarantined":
            if job.crashes < Limits.max_crashes:
                yield f"{job.task} {job.id} is quarantined after {job.crashes} crashes"
            if not cut_off[str(job.id)]:
                yield f"{job.task} {job.id} is quarantined, and no run of it was cut off"


def _tokens(campaign: Campaign, kind: str) -> Runs:
    found: Runs = defaultdict(set)
    for process in campaign.nodes():
        for line in process.of(kind):
            if kind != "end" or line["how"] == "ended":
                found[line["job"]].add(line["token"])
    return found


def _cut_off(campaign: Campaign) -> Runs:
    """Runs that did not end, and those whose node lost its lease before it could say so. (A start
    is marked before its handler's first line, and told as ended after its last: not each crash
    that counts is one of these.)"""
    found: Runs = defaultdict(set)
    for process in campaign.nodes():
        ended = {(line["job"], line["token"]) for line in process.of("end")}
        left = {span.me for span in beliefs(process, "node") if span.why == "stopped"}
        for line in process.of("start"):
            if (line["job"], line["token"]) not in ended or line["node"] not in left:
                found[line["job"]].add(line["token"])
    return found
