"""``make mutants``: the campaign against each broken build, and the table of what caught it.

Arguments: names of mutants (all without), ``--write`` for the table in the docs.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from leasework_lab.chaos.campaign import Order, run
from leasework_lab.chaos.checkers import Check
from leasework_lab.chaos.fleet import Plan

from leasework.errors import LeaseworkError
from tests.mutants.builds import BY_NAME, MUTANTS, SOUND, Mutant

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = Path(__file__).with_name("launch.py")
TABLE = ROOT / "docs" / "explanation" / "mutants.md"
MARK = "<!-- campaign -->"
SEEDS = (1, 2, 3, 4, 5, 6)
"""Some need a pause at the right moment. The sound build has half of them."""
DRAIN_SECONDS = 32.0
"""What was enqueued while the database's clock was ahead (20 s at most) is due that much later."""


@dataclass
class Caught:
    mutant: Mutant
    by: str
    """The checks that failed; empty: it was not caught."""
    what: str
    seconds: float
    seeds: int
    judged: int = 0
    """Runs that came to an end and were judged, with nothing left unknown."""

    @property
    def as_wanted(self) -> bool:
        """A broken build was caught; the sound one was judged in each of its runs, and held."""
        if self.mutant is SOUND:
            return not self.by and self.judged == self.seeds
        return bool(self.by)


def failed_checks(mutant: Mutant, checks: Sequence[Check]) -> list[Check]:
    """A statement that the database refuses is an error of the broken build, and finds nothing; of
    the sound build it is a violation like any other."""
    return [c for c in checks if c.violations and (c.name != "services" or mutant is SOUND)]


def hunt(mutant: Mutant) -> Caught:
    """Short aimed runs, until a check fails."""
    child = (sys.executable, str(LAUNCH), mutant.name)
    began = time.monotonic()
    seeds = SEEDS[:3] if mutant is SOUND else SEEDS
    judged = 0
    for tried, seed in enumerate(seeds, 1):
        order = Order(
            "all", seed, mutant.seconds, DRAIN_SECONDS, plan=Plan(nodes=3, child=child),
            aim=mutant.aim, every=mutant.every,
        )  # fmt: skip
        try:
            result = asyncio.run(run(order))
        except LeaseworkError as error:
            # a build that cannot even start shows nothing about the checks
            print(f"{mutant.name}: {error}", file=sys.stderr, flush=True)
            continue
        judged += not result.unknown
        if failed := failed_checks(mutant, result.checks):
            # what is left over at the end, and who did not live to see it, tells least
            failed.sort(key=lambda check: check.name in ("finished", "lost", "processes"))
            by = ", ".join(check.name for check in failed)
            took = time.monotonic() - began
            return Caught(mutant, by, failed[0].violations[0], took, tried, judged)
    return Caught(mutant, "", "", time.monotonic() - began, len(seeds), judged)


def rows(found: list[Caught]) -> list[str]:
    lines = ["| mutant | what is broken | caught by the checks | after |", "|---|---|---|---|"]
    for one in found:
        by, after = one.by or "nothing", f"{one.seconds:.0f} s"
        lines.append(f"| {one.mutant.name} | {one.mutant.takes_out} | {by} | {after} |")
    for mutant in MUTANTS:
        if not mutant.chaos:
            lines.append(f"| {mutant.name} | {mutant.takes_out} | needs a promotion | |")
    return lines


def main() -> int:
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    every = [SOUND, *[m for m in MUTANTS if m.chaos]]
    wanted = [BY_NAME[name] for name in names] or every
    found = []
    for mutant in wanted:
        one = hunt(mutant)
        found.append(one)
        print(
            f"{mutant.name:22} {one.seconds:5.0f} s, {one.seeds} run(s), {one.judged} judged: "
            f"{one.by or 'nothing was seen'}\n    {one.what}",
            flush=True,
        )
    if "--write" in sys.argv:
        before, _, rest = TABLE.read_text().partition(MARK)
        _, _, after = rest.partition(MARK)
        TABLE.write_text(f"{before}{MARK}\n{chr(10).join(rows(found))}\n{MARK}{after}")
    return 0 if all(one.as_wanted for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
