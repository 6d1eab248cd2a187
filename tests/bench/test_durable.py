"""The measures of durable jobs, small: of leasework alone, whose peers need their own packages."""

from __future__ import annotations

import pytest

from bench.flows import SHAPES
from bench.parties import durable
from tests.bench.test_measures import bench, rows

__all__ = ["bench"]
pytestmark = pytest.mark.timeout(300)


def test_steps_are_measured_of_many_jobs_and_of_one(bench):
    together, alone = bench("durable", "steps", "--jobs=20", "--steps=30", "--noops=300")
    assert set(rows(together)) == {"leasework, a job of nothing", "leasework"}
    for figures in [*rows(together).values(), *rows(alone).values()]:
        assert figures["jobs_per_second"] > 0 and figures["backend_cpu_us"] > 0


def test_each_job_of_a_killed_worker_repeats_the_step_that_ran_and_goes_on(bench):
    [result] = bench("durable", "kill", "--jobs=3", "--ms=1000")
    [slice_] = result["contenders"]["leasework"]["rounds"]
    for suffix in ("", "_again"):
        assert 1 <= slice_[f"twice{suffix}"] <= 6 and slice_[f"goes_on{suffix}"] > 0


def test_each_branch_of_a_gather_finds_its_own_result_in_the_replay(bench):
    [result] = bench("durable", "gather", "--jobs=4")
    assert set(rows(result)) == {f"leasework, {shape}" for shape in SHAPES}
    for figures in rows(result).values():
        assert figures == {"right": 4, "mixed": 0, "failed": 0, "stuck": 0}


def test_what_waits_is_measured(bench):
    [suspended] = bench("durable", "suspended", "--jobs=300", "--suspended=500")
    assert set(rows(suspended)) == {"none", "500 suspended"}
    [signals] = bench("durable", "signals", "--jobs=10")
    assert rows(signals)["leasework"]["p50_ms"] > 0
    [batch] = bench("durable", "batch", "--jobs=500")
    assert set(rows(batch)) == {"enqueue_many", "batch"}
    assert rows(batch)["batch"]["called_back_ms"] > 0


def test_a_peer_that_has_no_steps_is_unknown():
    with pytest.raises(SystemExit, match=r"unknown: celery\. Known: peers, dbos, absurd"):
        durable(["celery"])
