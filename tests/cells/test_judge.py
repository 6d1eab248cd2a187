"""The judge reports what it must: the other cells slower, jobs lost, doubled, refused or astray."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cells.__main__ import KILLED, Times, judge

T = Times(began=0, killed=10, back=20, ended=30)
CELLS = ("a", "b", "c")


def ledger() -> list[dict[str, Any]]:
    """What a sound run would note, with 20 jobs a second in each cell."""
    lines: list[dict[str, Any]] = [{"what": "tick", "at": n, "cell": "a"} for n in range(30)]
    for n in range(600):
        for cell in CELLS:
            line = {"at": n / 20, "cell": cell, "job": f"{cell}{n}", "key": "k"}
            if cell == KILLED and 200 <= n < 400:
                lines.append({**line, "what": "not enqueued", "error": "Unavailable"})
            else:
                lines += [{**line, "what": "sent"}, {**line, "what": "effect"}]
    return lines


def broken(lines: list[dict[str, Any]]) -> list[str]:
    sent = [line for line in lines if line["what"] == "sent"]
    done = {
        cell: {line["job"]: "completed" for line in sent if line["cell"] == cell} for cell in CELLS
    }
    found = judge(lines, done, dict.fromkeys(CELLS, 0), [], T)
    return [check.name for check in found if not check.ok]


def test_a_sound_run_passes() -> None:
    assert broken(ledger()) == []


def effect(line: dict[str, Any], number: int) -> bool:
    return line["what"] == "effect" and line["job"] == f"a{number}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [x for x in lines if not effect(x, 7)], "a: nothing acknowledged is lost"),
        (lambda lines: [*lines, *(x for x in lines if effect(x, 7))], "a: no effect came twice"),
        (
            lambda lines: [{**x, "at": 25} if 240 < x["at"] * 20 < 260 else x for x in lines],
            "a: went on at its rate",
        ),
        (
            lambda lines: [{**x, "cell": "c"} if effect(x, 7) else x for x in lines],
            "each job ran in the cell of its key",
        ),
        (
            lambda lines: [*lines, {"what": "tick", "at": 1, "cell": "b"}],
            "the schedule ran in its cell alone",
        ),
        (
            lambda lines: [*lines, {"what": "not enqueued", "at": 11, "cell": "c", "error": "x"}],
            "c: no enqueue was refused",
        ),
    ],
)
def test_what_is_broken_is_reported(change: Any, said: str) -> None:
    assert said in broken(change(ledger()))
