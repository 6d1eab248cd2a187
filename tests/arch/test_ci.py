"""In CI nothing is skipped, and a run of no tests is not a success."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.arch import tree
from tests.support.no_skips import CANNOT

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
        env = {**os.environ, "CI": ci, "PYTHONPATH": str(tree.ROOT), "COLUMNS": "200"}
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
