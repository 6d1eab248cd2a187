"""``python -m tests.sim.search``: the first seed that finds each mutant, and which checker did.

``--seeds N`` is how far it looks (4,000), ``--only NAME`` one of them, ``--json`` for tools.
Exit code 1: one was not found, or broke by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass

from tests.sim.mutants import MUTANTS, Mutant


@dataclass(frozen=True)
class Found:
    """``seeds``: how many were run, with the one that found it. ``by``: the checkers' names.
    ``crashed``: the first seed in which nothing but an error of the build itself was seen."""

    mutant: str
    seeds: int
    seed: int | None
    profile: str
    by: str
    cpu_seconds: float
    crashed: int | None = None


_CRASHES = {"unhandled", "the run broke off"}
"""An error that nobody took is no checker's: the mutant is written wrongly."""
_SERVICE = "a service failed"
"""What a service says of itself. That shows no promise broken, and finds nothing."""


def search(mutant: Mutant, seeds: int, first: int = 0) -> Found:
    """Run seeds from ``first`` on until one finds the mutant."""
    began = time.process_time()
    crashed: int | None = None
    for seed in range(first, first + seeds):
        result = mutant.run(seed)
        names = dict.fromkeys(_checker(text) for text in result.violations)
        by = ", ".join(name for name in names if name not in (*_CRASHES, _SERVICE))
        if by:
            seconds = round(time.process_time() - began, 1)
            return Found(mutant.name, seed + 1 - first, seed, result.profile, by, seconds, crashed)
        if crashed is None and names.keys() & _CRASHES:
            crashed = seed
    seconds = round(time.process_time() - began, 1)
    return Found(mutant.name, seeds, None, "", "", seconds, crashed)


def _checker(violation: str) -> str:
    """ "12.345 OneBeliever: …" → OneBeliever"""
    named = re.match(r"[\d.]+ ([A-Z]\w+):", violation)
    return named.group(1) if named else violation.split(" ", 1)[1].split(":")[0][:40]


def _by_name(name: str, seeds: int) -> Found:
    return search(next(mutant for mutant in MUTANTS if mutant.name == name), seeds)


def table(found: list[Found]) -> str:
    """Markdown: what was taken out, after how many seeds it was found, by what."""
    breaks = {mutant.name: mutant.breaks for mutant in MUTANTS}
    lines = [
        "| broken build | the removed protection | seeds | found by | CPU s |",
        "|---|---|---:|---|---:|",
    ]
    for f in found:
        by = f.by or "not found"
        by += "" if f.crashed is None else f" (broke by itself in seed {f.crashed})"
        lines.append(
            f"| {f.mutant} | {breaks.get(f.mutant, '')} | {f.seeds} | {by} | {f.cpu_seconds} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.search", description=__doc__)
    parser.add_argument("--seeds", type=int, default=4000)
    parser.add_argument("--only", choices=[mutant.name for mutant in MUTANTS], action="append")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = given.only or [mutant.name for mutant in MUTANTS]
    with ProcessPoolExecutor(given.processes) as pool:
        found = list(pool.map(_by_name, names, [given.seeds] * len(names)))
    print(json.dumps([asdict(f) for f in found], indent=1) if given.json else table(found))
    return 0 if all(f.seed is not None and f.crashed is None for f in found) else 1


if __name__ == "__main__":
    sys.exit(main())
