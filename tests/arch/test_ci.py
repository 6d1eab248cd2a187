"""In CI nothing is skipped, and a run of no tests is not a success."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.arch import tree
from tests.support.no_skips import CANNOT

QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist.plugin"}

SUITE = """
import pytest

def test_runs(): pass

@pytest.mark.skip(reason="marked so")
def test_marked(): pass

def test_skips_inside(): pytest.skip("said so")

@pytest.mark.xfail(reason="not done")
def test_fails_as_expected(): assert False

@pytest.mark.xfail
def test_passes_unexpectedly(): pass

@pytest.mark.parametrize("x", [])
def test_of_nothing(x): pass
"""
WHOLE_FILE = 'import pytest\npytest.skip("all of it", allow_module_level=True)\n'


@pytest.fixture
def run_suite(tmp_path):
    def run(ci: str, text: str) -> tuple[int, str]:
        (tmp_path / "test_it.py").write_text(text)
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        env = {**os.environ, **QUICK, "CI": ci, "PYTHONPATH": str(tree.ROOT), "COLUMNS": "200"}
        args = ["-p", "tests.support.no_skips", "-p", "no:cacheprovider", "-ra", str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *args], env=env, capture_output=True, text=True
        )
        return done.returncode, done.stdout

    return run


def test_with_ci_set_each_kind_of_skip_is_a_failure_and_is_listed(run_suite):
    code, out = run_suite("true", SUITE)
    closing = out.strip().splitlines()[-1]
    assert code == 1
    assert "3 failed, 1 passed, 2 errors" in closing
    for reason in ("marked so", "said so", "not done", "empty parameter set"):
        assert reason in out
    assert "skipped" not in closing


def test_with_ci_set_what_the_machine_cannot_do_stays_a_skip_and_is_listed(run_suite):
    text = f"import pytest\ndef test_it(): pytest.skip({CANNOT + 'no such hooks'!r})\n"
    code, out = run_suite("true", text)
    assert code == 0 and "1 skipped" in out and "no such hooks" in out


def test_with_ci_set_a_whole_file_that_skips_is_an_error(run_suite):
    code, out = run_suite("true", WHOLE_FILE)
    assert code not in (0, 5)
    assert "all of it" in out


def test_without_ci_a_skip_stays_a_skip(run_suite):
    code, out = run_suite("", SUITE)
    assert code == 0
    assert "1 passed, 3 skipped, 1 xfailed, 1 xpassed" in out


def test_a_run_of_no_tests_is_not_a_success(run_suite):
    assert run_suite("true", "")[0] == 5


COUNTED = """
from pathlib import Path

def runs(name):
    with Path(name).open("a") as file:
        file.write(".")
    return Path(name).stat().st_size

def test_runs(): pass
def test_fails_{kind}(): assert {passes}
"""


@pytest.fixture
def run_tests(tmp_path: Path):
    """``scripts/run-tests`` in a folder of its own, with a suite of one file."""
    for folder in ("scripts", "tests/unit/__pycache__", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    tag = sys.implementation.cache_tag
    (tmp_path / f"tests/unit/__pycache__/test_it.{tag}-pytest-8.pyc").touch()  # not a new clone
    shutil.copy(tree.ROOT / "scripts" / "run-tests", tmp_path / "scripts")
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(ci: str, text: str) -> tuple[int, str, str]:
        (tmp_path / "test_it.py").write_text(text)
        done = subprocess.run(
            [tmp_path / "scripts" / "run-tests", ".venv", "all tests", "test_it.py"],
            env={**os.environ, **QUICK, "CI": ci},
            capture_output=True,
            text=True,
        )
        line = (tmp_path / "build" / "tests" / "tests.line").read_text()
        return done.returncode, done.stdout, line

    return run


def test_a_failed_test_that_passes_twice_is_named_as_unstable_in_ci(run_tests):
    once = COUNTED.format(kind="once", passes='runs("once") > 1')
    code, out, line = run_tests("true", once)
    assert code == 0 and "1 failed, 1 passed" in line
    assert "unstable, passed twice when they ran again: test_it.py::test_fails_once" in line
    assert "assert 1 > 1" in out, "its failure is printed"


@pytest.mark.parametrize(
    ("ci", "passes", "runs"),
    [
        ("true", 'runs("n") < 0', 2),
        ("true", 'runs("n") == 2', 3),  # twice, because it may have been luck
        ("", 'runs("n") > 1', 1),
    ],
)
def test_any_other_failed_test_fails_the_run(run_tests, tmp_path, ci, passes, runs):
    code, _, line = run_tests(ci, COUNTED.format(kind="so", passes=passes))
    assert code == 1 and "1 failed, 1 passed" in line and "unstable" not in line
    assert (tmp_path / "n").stat().st_size == runs


def test_more_than_three_failed_tests_fail_the_run(run_tests):
    many = COUNTED.format(kind="a", passes='runs("n") > 4')
    many += "".join(f"def test_fails_{name}(): assert runs('n') > 4\n" for name in "bcd")
    code, _, line = run_tests("true", many)
    assert code == 1 and "4 failed" in line and "unstable" not in line
