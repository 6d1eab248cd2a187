"""The harness of bench/: what it counts, and that it notices what it must."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.ledger import Ledger, Ledgers
from bench.measures.drain import Work, check
from bench.process import commit
from bench.report import Result, shown
from bench.workers import Wrong


class Place:
    """What ``check`` looks at."""

    def __init__(self, numbers: list[int], finished: int | None) -> None:
        self.ledgers = self
        self._numbers = numbers
        self._finished = finished

    def numbers(self) -> list[int]:
        return self._numbers

    def finished(self) -> int | None:
        return self._finished


def test_a_ledger_is_read_from_another_mapping_and_keeps_each_run(tmp_path: Path):
    ran = Ledger.of_this_process(str(tmp_path), 10).recorder()
    for number in (3, 1, 3):
        ran(number)
    assert Ledgers(tmp_path).numbers() == [3, 1, 3]
    timed = Ledger(tmp_path / "other.ledger", 20).recorder(timed=True)
    timed(7)
    timed(8)
    [other] = [led for led in Ledgers(tmp_path).all() if led.path.name == "other.ledger"]
    (first, early), (second, late) = other.timed()
    assert (first, second) == (7, 8) and 0 < early <= late


def test_a_ledger_that_is_full_refuses_a_run(tmp_path: Path):
    ran = Ledger(tmp_path / "a.ledger", 2).recorder()
    ran(1)
    ran(2)
    with pytest.raises(IndexError):
        ran(3)


@pytest.mark.parametrize(
    ("numbers", "finished"), [([0, 1], 3), ([0, 1, 1], 3), ([0, 1, 2, 2], 3), ([0, 1, 2], 2)]
)
def test_a_lost_a_doubled_and_an_unrecorded_job_are_noticed(numbers, finished):
    with pytest.raises(Wrong):
        check(Place(numbers, finished), Work(3))


def test_a_whole_drain_is_accepted():
    check(Place([2, 0, 1], 3), Work(3))
    check(Place([2, 0, 1], None), Work(3))
    check(Place([2, 0, 1], 0), Work(3, history=False))


def test_the_ratio_is_the_median_of_the_rounds_own_ratios():
    result = Result("m", "s", {"rate": "rate"}, "ref")
    for ours, theirs in ((10, 5), (3, 3), (40, 10)):
        result.add("ours", {"rate": ours})
        result.add("ref", {"rate": theirs})
    assert result.ratios("ours") == {"rate": 2}
    assert result.medians("ours") == {"rate": 10}
    assert "| ours | 10 (2.00) |" in shown(result)


def test_there_is_no_ratio_to_a_reference_that_has_a_zero_or_no_figure_in_some_round():
    result = Result("m", "s", {"rate": "rate", "cost": "cost"}, "ref")
    for theirs in ({"rate": 0, "cost": 2}, {"rate": 5}):
        result.add("ours", {"rate": 10, "cost": 4})
        result.add("ref", theirs)
    assert "| ours | 10 | 4 |" in shown(result)


def test_leasework_is_compared_with_each_of_the_others_round_by_round():
    result = Result("m", "s", {"rate": "rate", "cost": "cost"}, "ref")
    for ours, theirs in ((10, 5), (40, 10), (3, 1)):
        result.add("ref", {"rate": 1, "cost": 1})
        result.add("leasework", {"rate": ours, "cost": 2})
        result.add("peer", {"rate": theirs})
    assert "| peer | 3 (2 to 4) | - |" in shown(result)


def test_results_that_were_just_written_are_no_change_of_what_was_measured(tmp_path: Path):
    def git(*words: str) -> None:
        me = ["-c", "user.name=tester", "-c", "user.email=tester@example.org"]
        subprocess.run(["git", *me, *words], cwd=tmp_path, check=True, capture_output=True)

    results = tmp_path / "bench" / "results"
    results.mkdir(parents=True)
    measured, result = tmp_path / "code.py", results / "drain.json"
    measured.write_text("1")
    result.write_text("{}")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    clean = commit(tmp_path)
    assert len(clean) >= 7
    result.write_text("[]")
    assert commit(tmp_path) == clean
    measured.write_text("2")
    assert commit(tmp_path) == f"{clean}-dirty"
