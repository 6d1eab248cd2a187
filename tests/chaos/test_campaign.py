"""A short campaign with real processes and real faults, and what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from leasehold.chaos.campaign import Order, run
from leasehold.chaos.counts import missing_of_one
from leasehold.chaos.fleet import Plan
from leasehold.chaos.report import to_html, to_json

pytestmark = pytest.mark.timeout(180)
SECONDS = 14.0
SEED = 20261


@pytest.mark.slow
def test_a_short_campaign_with_every_fault_holds_and_shows_enough(tmp_path: Path) -> None:
    said: list[str] = []
    order = Order("all", SEED, SECONDS, 60.0, plan=Plan(nodes=3), keep=tmp_path)
    result = asyncio.run(run(order, said.append))
    print(*said, result.counts, *result.logs.items(), sep="\n")
    assert result.violations == []
    assert result.tables is not None and not result.unknown
    assert missing_of_one(result.counts, "all", SECONDS / 2, True) == []
    kinds = {fault.kind for fault in result.campaign.faults}
    assert len(kinds) >= 5, kinds
    assert all(fault.end < float("inf") for fault in result.campaign.faults), "all were undone"
    assert len(list(tmp_path.glob("*.jsonl"))) >= 5

    page = to_html([result], result.counts, [])
    assert page.count("<rect") > 20, "a timeline"
    assert not re.search(r"(src|href)=|@import|url\(", page), "it needs nothing from anywhere"
    told = json.loads(json.dumps(to_json([result], result.counts, [])))
    assert told["verdict"] == "held"
    assert {check["name"] for check in told["runs"][0]["checks"]} >= {"lost", "one believer"}
