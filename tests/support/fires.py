"""What the fires share: their command, and how they tell what their oracles found."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

DRAIN_SECONDS = 90.0
SERVER = {"track_commit_timestamp": "on", "fsync": "off", "max_connections": "200"}


def tell(checks: Sequence[Any], errors: Sequence[str]) -> None:
    for check in checks:
        said = "ok" if check.ok else f"{len(check.found)} VIOLATIONS" if check.found else "TOO FEW"
        print(f"  {said:>15}  {check.name}: {check.looked_at} looked at")
        for each in check.found[:3]:
            print(f"                   {each}")
    for error, times in sorted(Counter(errors).items())[:10]:
        print(f"  error, {times} times: {error}")


def command(
    prog: str,
    builds: Sequence[Any],
    run: Callable[[float, int, str, float], Sequence[Any]],
    no_proof: Collection[str] = (),
) -> int:
    """Parse the arguments and burn. The exit code is 0 if a sound build held, or a broken one was
    caught by a check that is not among ``no_proof``."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--drain", type=float, default=DRAIN_SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    names = sorted(build.name for build in builds)
    parser.add_argument("--broken", default="", choices=names, metavar="NAME")
    parser.add_argument("--list", action="store_true", help="list the broken builds")
    given = parser.parse_args()
    if given.list:
        for build in builds:
            print(f"{build.name:15} {build.takes_out}")
        return 0
    checks = run(given.seconds, given.seed, given.broken, given.drain)
    caught = [check.name for check in checks if check.found and check.name not in no_proof]
    if given.broken:
        print(f"{given.broken}: {'caught by ' + ', '.join(caught) if caught else 'NOT CAUGHT'}")
        return 0 if caught else 1
    return 0 if all(check.ok for check in checks) else 1
