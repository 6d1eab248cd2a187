"""The real services in the simulated world: nothing breaks, and what is broken is found.

What fails names its seed; ``leasework sim --seed N --trace`` shows it step by step.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from leasework_lab.sim.cluster import run_seed
from leasework_lab.sim.faults import PROFILES
from leasework_lab.sim.sweep import sweep

from tests.sim.mutants import MUTANTS
from tests.sim.search import search

SEEDS = 150
QUICKLY_FOUND = (
    "ClaimWithoutGuard",
    "RedefinedAnew",
    "NothingGivenBack",
    "AckWithoutToken",
    "AcquireWhateverWasSeen",
    "TakeoverTooEarly",
    "TakeoverByTheClock",
    "LateCommit",
    "RenewalAfterTheEnd",
    "DeletedRowIsFree",
    "NothingForgotten",
    "PeriodicDies",
    "FencedForGood",
    "TokenPlusOne",
    "ClaimTokenPlusOne",
    "NoFence",
    "NoIdempotency",
    "NoTraceOfARepetition",
    "SweepWithoutLock",
    "StopWithoutDrain",
    "StopWithoutEnd",
    "UserLeaseWithoutEnd",
)
"""Soon, whatever changes elsewhere; ``make mutants-sim`` looks for all of them."""
PATIENCE = 400
"""Seeds: the rarest of these shows in one of 70."""
FOUND_BEFORE_IN = {
    "AckWithoutToken": 19,
    "NoFence": 50,
    "NoTraceOfARepetition": 52,
    "StopWithoutDrain": 30,
    "StopWithoutEnd": 30,
    "UserLeaseWithoutEnd": 17,
}
"""Seeds to begin with, which spare the search. They need no care: when the services change, other
seeds find the build, and the search goes on until it meets one."""


def trace_of(seed: int) -> list[str]:
    return run_seed(seed, trace=True).trace


@pytest.mark.timeout(300)
def test_no_seed_violates_an_invariant():
    results = list(sweep(range(SEEDS)))
    assert not [(r.seed, r.violations) for r in results if r.violations]
    assert {result.profile for result in results} == set(PROFILES)
    totals = {
        name: sum(result.counts.get(name, 0) for result in results)
        for name in ("faults", "unknown", "node_fenced", "ack_refused", "claim_unknown", "terms")
    }
    assert all(count >= 5 for count in totals.values()), f"hardly anything happened: {totals}"


def test_what_a_failover_made_a_live_node_forget_runs_again():
    """Without the comparison these seeds leave jobs running for ever on a node that has forgotten
    them. A change of the simulation may need others: ``make mutants-sim`` finds one."""
    [forgetful] = [mutant for mutant in MUTANTS if mutant.name == "NothingForgotten"]
    for seed in (0, 43, 44):
        assert forgetful.run(seed).violations, f"seed {seed} shows nothing any more"
        result = run_seed(seed, profile="failover")
        assert not result.violations and result.counts["fault lose"], (seed, result.violations)


def test_a_trace_changes_nothing():
    lines: list[str] = []
    for seed in range(8):
        traced, silent = run_seed(seed, trace=True), run_seed(seed)
        assert not traced.violations
        assert traced.counts == silent.counts
        lines += traced.trace
    assert any("copies 20 jobs" in line for line in lines), "no COPY in it"


def test_a_seed_is_the_same_run_each_time():
    assert trace_of(4) == trace_of(4) != trace_of(5)


def test_a_seed_is_the_same_run_in_another_process():
    command = [sys.executable, "-m", "leasework", "sim", "--seed", "4", "--trace"]
    environ = {**os.environ, "PYTHONHASHSEED": "7"}
    shown = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("\n".join(trace_of(4)))


@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_a_broken_build_is_found(name: str):
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    found = search(mutant, PATIENCE, FOUND_BEFORE_IN.get(name, 0))
    assert found.seed is not None, f"{PATIENCE} seeds did not find that {mutant.breaks} is gone"
