"""The broken builds still break something: what they replace is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.chaos.faults import Faults
from leasehold.pg.sql import statement
from tests.mutants.builds import BY_NAME, MUTANTS, Mutant

LAUNCH = Path(__file__).with_name("launch.py")


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_what_a_mutant_replaces_is_there(mutant: Mutant) -> None:
    for name, pairs in mutant.sql.items():
        text = statement(name, "leasehold")
        for old, new in pairs:
            assert old in text, f"{name} has no {old!r}"
            text = text.replace(old, new)
        assert text != statement(name, "leasehold")
    for fault in mutant.aim:
        assert callable(getattr(Faults, f"_{fault}")), fault


PATCHED = """
import sys
from tests.mutants.builds import BY_NAME
from leasehold.model.lease import Lease, Watch
from leasehold.node.node import Node
from leasehold.pg.store_jobs import JobOperations
kinds = (Lease, Watch, Node, JobOperations)
before = [dict(vars(kind)) for kind in kinds]
BY_NAME[sys.argv[1]].patch()
pairs = [(old, vars(kind), name) for kind, old in zip(kinds, before) for name in vars(kind)]
changed = [name for old, new, name in pairs if old.get(name) is not new[name]]
unknown = [name for old, new, name in pairs if name not in old]
print(len(changed), unknown)
"""


def test_what_a_mutant_patches_is_there() -> None:
    """In a process of its own: the patches stay."""
    for name in ("takeover-by-the-clock", "no-idempotency-key", "renew-after-expiry",
                 "cancel-without-drain", "takeover-too-early"):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", PATCHED, name], capture_output=True, text=True, check=True
        )
        changed, _, unknown = done.stdout.strip().partition(" ")
        assert int(changed) >= 1 and unknown == "[]", (name, done.stdout)
    assert BY_NAME["sound"].sql == {}
