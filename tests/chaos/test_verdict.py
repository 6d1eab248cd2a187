"""From checks to a verdict: the exit status, the page and what is refused."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from click.testing import CliRunner
from leasework_lab.chaos import gate
from leasework_lab.chaos.campaign import Order, Result
from leasework_lab.chaos.checkers import judge
from leasework_lab.chaos.counts import GATE, Counts, count
from leasework_lab.chaos.gate import Verdict
from leasework_lab.chaos.report import to_html, to_json, verdict_of
from leasework_lab.chaos.tables import Tables
from leasework_lab.commands.chaos import _tell, chaos

from leasework.cli.root import root
from leasework.config import Settings
from leasework.errors import Unavailable
from tests.chaos.histories import TIMES, World

VOID = ["1 terms, but at least 2 are needed"]


def result(world: World, tables: Tables | None) -> Result:
    checks = judge(world.campaign, tables, TIMES)
    settings = Settings(recover_within=9)
    return Result(world.campaign, tables, checks, count(world.campaign, tables), settings)


def exit_code(played: Result, void: list[str]) -> int:
    return Verdict([played], played.counts, void).exit_code


def test_held_is_0_void_and_unknown_are_3_and_a_violation_is_1_whatever_else() -> None:
    world = World()
    good = result(world, world.tables)
    unread = result(world, None)
    world.change(jobs=world.tables.jobs[1:])
    bad = result(world, world.tables)
    assert exit_code(good, []) == 0
    assert exit_code(good, VOID) == exit_code(unread, []) == exit_code(unread, VOID) == 3
    assert exit_code(bad, []) == exit_code(bad, VOID) == 1
    assert verdict_of([good], []) == "held" and verdict_of([good], VOID) == "void"
    assert verdict_of([unread, good], []) == "unknown"
    assert verdict_of([good, unread, bad], VOID) == "violated"


def test_the_page_and_the_json_name_what_was_violated_and_with_which_seed() -> None:
    world = World()
    world.change(jobs=world.tables.jobs[1:])
    world.hit("pause", "node1", 10.0, 12.0)
    bad = result(world, world.tables)
    page = to_html([bad], bad.counts, VOID)
    assert "A promise was broken" in page and "p-1 was acknowledged but has no job" in page
    assert "--profile process --seed 1" in page and "<svg" in page
    told = to_json([bad], bad.counts, VOID)
    assert told["verdict"] == "violated" and told["void"] == VOID
    [lost] = [check for check in told["runs"][0]["checks"] if check["name"] == "lost"]
    assert lost["violations"] == ["p-1 was acknowledged but has no job"]
    assert told["runs"][0]["faults"][0] == {
        "kind": "pause", "target": "node1", "at": 7.0, "seconds": 2.0, "what": "",
    }  # fmt: skip


def test_a_check_that_had_nothing_to_look_at_is_told_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World()
    good = result(world, world.tables)
    page = to_html([good], good.counts, [])
    row = r'<tr class="idle"><td>overlap</td>.*?<td class="n">0</td><td>nothing to check</td>'
    assert re.search(row, page), page
    _tell(Verdict([good], good.counts, []))
    told = capsys.readouterr().out.splitlines()
    assert "20 of 24 checks held, 4 had nothing to check" in told[0]
    assert told[-1].startswith("Every promise held. Nothing to check: overlap, ")
    start = next(entry for entry in world.two.lines if entry["kind"] == "start")
    world.two.lines.append({**start, "token": 99, "at": 9.0})
    busy = result(world, world.tables)
    assert '<tr class="held"><td>overlap</td>' in to_html([good, busy], good.counts, [])
    _tell(Verdict([good, busy], good.counts, []))
    assert "overlap" not in capsys.readouterr().out.splitlines()[-1]


def test_the_gate_is_not_for_somebodys_application() -> None:
    refused = CliRunner().invoke(chaos, ["shop.jobs:app", "--gate"])
    assert refused.exit_code == 2 and "without MODULE:APP" in refused.output


@pytest.mark.parametrize(
    "error", [Unavailable("nobody leads"), KeyError("a mistake"), KeyboardInterrupt()]
)
def test_a_campaign_that_breaks_off_is_no_broken_promise(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def play(*args: object) -> Verdict:
        raise error

    monkeypatch.setattr(gate, "play", play)
    ended = CliRunner().invoke(root, ["chaos"])
    assert ended.exit_code == 3, ended.output
    assert CliRunner().invoke(root, ["chaos", "no.such:app"]).exit_code == 3


@pytest.mark.parametrize(
    ("shown", "runs", "void"),
    [
        (1.0, ["none", *gate.ROTATION], 0),
        (0.9, ["none", *gate.ROTATION, "all"], 0),
        (0.65, ["none", *gate.ROTATION, "all", "all", "all"], 0),
        (0.4, ["none", *gate.ROTATION, "all", "all", "all"], 5),
    ],
    ids=["enough", "a little less", "less", "much too little"],
)
async def test_a_gate_that_shows_too_little_goes_on_and_is_void_in_the_end(
    monkeypatch: pytest.MonkeyPatch, shown: float, runs: list[str], void: int
) -> None:
    world = World()
    sample = result(world, world.tables)
    names = ("faults", "acknowledged", "terms", "unknown", "stale", "fenced")
    least = Counts(
        **{name: math.ceil(getattr(GATE, name) * shown / len(gate.ROTATION)) for name in names}
    )
    ordered: list[Order] = []

    async def run(order: Order, say: object) -> Result:
        ordered.append(order)
        campaign = replace(sample.campaign, profile=order.profile, load=3.0)
        return replace(sample, campaign=campaign, counts=least)

    monkeypatch.setattr(gate, "run", run)
    monkeypatch.setattr(gate.os, "getloadavg", lambda: (9.0, 9.0, 9.0))
    verdict = await gate.gate(Order(seed=7), lambda text: None)
    assert [order.profile for order in ordered] == runs
    assert len({order.seed for order in ordered}) == len(ordered)
    assert len(verdict.void) == void
