"""What type checkers find in calls of tasks: each wrong one, and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TYPES = Path(__file__).parents[1] / "types"


def by_mypy(file: Path) -> set[int]:
    command = ["-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(file)]
    said = subprocess.run([sys.executable, *command], capture_output=True, text=True).stdout
    return {int(n) for n in re.findall(rf"{file.name}:(\d+): error", said)}


def by_pyright(file: Path) -> set[int]:
    command = ["-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(file)]
    said = subprocess.run([sys.executable, *command], capture_output=True, text=True).stdout
    return {1 + found["range"]["start"]["line"] for found in json.loads(said)["generalDiagnostics"]}


@pytest.mark.parametrize("find", [by_mypy, by_pyright])
def test_type_checkers_find_each_wrong_call_and_nothing_else(
    find: Callable[[Path], set[int]],
) -> None:
    lines = (TYPES / "wrong.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "# wrong: " in line}
    assert len(wrong) == 46
    assert find(TYPES / "wrong.py") == wrong
    assert find(TYPES / "right.py") == set()
