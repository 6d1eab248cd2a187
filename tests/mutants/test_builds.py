"""The broken builds still break something: what they replace is there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from leasework_lab.chaos.campaign import Result
from leasework_lab.chaos.checkers import Check
from leasework_lab.chaos.counts import Counts
from leasework_lab.chaos.faults import Faults

from leasework.errors import Unavailable
from leasework.pg import sql
from tests.mutants import __main__ as hunting
from tests.mutants.builds import BY_NAME, MUTANTS, SOUND, Mutant
from tests.mutants.launch import break_statements

LAUNCH = Path(__file__).with_name("launch.py")


@pytest.fixture
def sound_statements() -> Iterator[None]:
    yield
    for cache in sql._texts, sql.statement, sql.query:
        cache.cache_clear()


@pytest.mark.parametrize("schema", ["leasework", "another"])
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutants_statements_are_broken_in_every_schema(
    mutant: Mutant, schema: str, sound_statements: None
) -> None:
    sound = {name: sql.statement(name, schema) for name in mutant.sql}
    break_statements(mutant.sql)
    for name, text in sound.items():
        assert sql.statement(name, schema) != text, name
    for fault in mutant.aim:
        assert callable(getattr(Faults, f"_{fault}")), fault


def held(name: str, *violations: str, unknown: bool = False) -> Result:
    """One run, with one check."""
    given: Any = SimpleNamespace()
    check = Check(name, "a promise", 1, list(violations), unknown)
    return Result(given, None, [check], Counts(), given)


@pytest.mark.parametrize(
    ("played", "judged", "wanted"),
    [
        ([held("lost")] * 3, 3, True),
        ([held("lost"), Unavailable("no server"), held("lost")], 2, False),
        ([held("lost"), held("lost", unknown=True), held("lost")], 2, False),
        ([held("lost"), held("services", "KeyError"), held("lost")], 2, False),
        ([held("lost", "p-1 is nowhere")], 1, False),
    ],
    ids=["held", "broke off", "unknown", "a service failed", "violated"],
)
def test_the_sound_build_passes_only_when_all_its_runs_were_judged_and_held(
    monkeypatch: pytest.MonkeyPatch, played: list[Any], judged: int, wanted: bool
) -> None:
    runs = iter(played)

    async def run(order: object) -> Result:
        result = next(runs)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(hunting, "run", run)
    one = hunting.hunt(SOUND)
    assert (one.judged, one.as_wanted) == (judged, wanted)


def test_a_failed_service_catches_no_broken_build(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = iter([*[held("services", "SyntaxError")] * 3, held("lost", "p-1 is nowhere")])

    async def run(order: object) -> Result:
        return next(runs)

    monkeypatch.setattr(hunting, "run", run)
    one = hunting.hunt(MUTANTS[0])
    assert (one.by, one.seeds, one.as_wanted) == ("lost", 4, True)


PATCHED = """
import sys
from tests.mutants.builds import BY_NAME
from leasework.model.lease import Lease, Watch
from leasework.node.node import Node
from leasework.store.jobs import JobStore
from leasework.jobs.attempt import Attempts
kinds = (Lease, Watch, Node, JobStore, Attempts)
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
                 "cancel-without-drain", "takeover-too-early", "crash-is-an-end"):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", PATCHED, name], capture_output=True, text=True, check=True
        )
        changed, _, unknown = done.stdout.strip().partition(" ")
        assert int(changed) >= 1 and unknown == "[]", (name, done.stdout)
    assert BY_NAME["sound"].sql == {}
