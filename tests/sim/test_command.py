"""``leasework sim`` as people and tools call it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner, Result
from leasework_lab.sim.store import SimStore

from leasework.cli.root import root


def call(*words: str) -> Result:
    return CliRunner().invoke(root, ["sim", *words])


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wants to lead, leads."""
    monkeypatch.setattr(SimStore, "_changed", lambda self, name, seen: False)


def test_when_all_held_the_exit_status_is_0_and_the_figures_are_told():
    called = call("--seeds", "2", "--processes", "1")
    assert called.exit_code == 0
    assert "every invariant held" in called.output and "unknown outcomes" in called.output


@pytest.mark.usefixtures("broken")
def test_a_violation_names_its_seed_and_the_command_that_shows_it():
    called = call("--seeds", "12", "--profile", "process", "--processes", "1")
    assert called.exit_code == 1
    seeds = re.findall(r"^VIOLATED seed (\d+) \(process\): ", called.output, re.MULTILINE)
    assert seeds
    for seed in seeds:
        assert f"leasework sim --seed {seed} --profile process --trace\n" in called.output


@pytest.mark.usefixtures("broken")
def test_tools_get_json():
    called = call("--seeds", "12", "--profile", "process", "--processes", "1", "--json")
    assert called.exit_code == 1
    told: dict[str, Any] = json.loads(called.stdout)
    assert all(failed["violations"] for failed in told["failed"]) and told["failed"]
    assert told["seeds"] == 12 and told["totals"]["faults"] > 0


def test_a_trace_tells_the_time_the_node_and_what_happened():
    called = call("--seed", "4", "--trace")
    assert called.exit_code == 0
    lines = [line.split(maxsplit=2) for line in called.output.splitlines()[:-1]]
    moments = [float(moment) for moment, _, _ in lines]
    assert moments == sorted(moments)
    assert {"p0.1", "client", "FAULT"} <= {who for _, who, _ in lines}
    assert any("acquires default: term 1" in what for _, _, what in lines)


@pytest.mark.parametrize("words", [("--trace",), ("--seeds", "0"), ("--profile", "none")])
def test_wrong_usage_is_exit_status_2(words: tuple[str, ...]):
    assert call(*words).exit_code == 2
