"""``python -m leasehold.sim --seeds 100``: runs seeds and names those that fail.

``--seed N --trace`` shows one, step by step. Exit code 1: an invariant was violated.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from leasehold.sim.cluster import Result, run_seed
from leasehold.sim.faults import PROFILES
from leasehold.sim.sweep import sweep


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m leasehold.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: every step")
    parser.add_argument("--profile", choices=PROFILES, help="by default the seed chooses")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    given = parser.parse_args()
    if given.seed is not None:
        result = run_seed(given.seed, profile=given.profile, trace=given.trace)
        for line in result.trace:
            _say(line)
        _tell(result)
        _say(f"seed {given.seed} ({result.profile}): {result.seconds:.0f} virtual seconds")
        return 1 if result.violations else 0
    totals: Counter[str] = Counter()
    failed = 0
    for result in sweep(range(given.first, given.first + given.seeds), given.profile, given.jobs):
        totals.update(result.counts)
        failed += bool(result.violations)
        _tell(result)
    names = (
        "faults",
        "enqueues",
        "jobs",
        "ticks",
        "terms",
        "unknown",
        "node_fenced",
        "ack_refused",
    )
    _say(f"{given.seeds} seeds, {failed} failed: " + ", ".join(f"{totals[n]} {n}" for n in names))
    return 1 if failed else 0


def _tell(result: Result) -> None:
    for violation in result.violations:
        _say(f"seed {result.seed} ({result.profile}): {violation}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
