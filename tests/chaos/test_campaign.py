"""A short campaign with real processes and real faults, and what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from leasework_lab.chaos import campaign as campaigns
from leasework_lab.chaos.campaign import Order, Result, run
from leasework_lab.chaos.counts import missing_of_one
from leasework_lab.chaos.fleet import Plan
from leasework_lab.chaos.report import to_html, to_json

from leasework.app.load import load_app

pytestmark = pytest.mark.timeout(180)
SECONDS = 12.0
SEED = 20261
TARGET = "tests.chaos.staging:app"


async def both(folder: Path, dsn: str) -> tuple[Result, Result]:
    """Both take their time: they are played together."""
    campaign = Order("all", SEED, SECONDS, 60.0, plan=Plan(nodes=3), keep=folder / "own")
    settings = load_app(TARGET).settings
    theirs = Order(
        "process", SEED, 8.0, 20.0, dsn=dsn, plan=Plan(2, 0, target=TARGET),
        settings=replace(settings, dsn=dsn), keep=folder / "staging",
    )  # fmt: skip
    own, staging = await asyncio.gather(run(campaign, print), run(theirs, print))
    return own, staging


def test_campaigns_that_overlap_leave_the_logger_as_it_was() -> None:
    logger = logging.getLogger("leasework")
    before = logger.propagate, list(logger.handlers)
    first, second = ExitStack(), ExitStack()
    first.enter_context(campaigns._silence)
    second.enter_context(campaigns._silence)
    first.close()
    assert not logger.propagate, "the second campaign goes on"
    second.close()
    assert (logger.propagate, logger.handlers) == before


def test_a_short_campaign_with_every_fault_holds_and_shows_enough(
    tmp_path: Path, migrated: str
) -> None:
    result, staging = asyncio.run(both(tmp_path, migrated))
    print(result.counts, *result.logs.items(), staging.counts, *staging.logs.items(), sep="\n")
    assert staging.violations == [] and not staging.unknown
    assert staging.counts.faults >= 2 and staging.counts.ticks >= 5
    assert result.violations == []
    assert result.tables is not None and not result.unknown
    missing = missing_of_one(result.counts, "all", SECONDS / 2, True)
    # in so short a time it is chance whether a fault hits a call between its request and its answer
    assert [line for line in missing if "unknown outcomes" not in line] == []
    kinds = {fault.kind for fault in result.campaign.faults}
    assert len(kinds) >= 3, "how many there are in so short a time is chance too"
    assert all(fault.end < float("inf") for fault in result.campaign.faults), "all were undone"
    assert len(list((tmp_path / "own").glob("*.jsonl"))) >= 5

    page = to_html([result], result.counts, [])
    assert page.count("<rect") > 10, "a timeline"
    assert not re.search(r"(src|href)=|@import|url\(", page), "it needs nothing from anywhere"
    told = json.loads(json.dumps(to_json([result], result.counts, [])))
    assert told["verdict"] == "held"
    assert {check["name"] for check in told["runs"][0]["checks"]} >= {"lost", "one believer"}
