"""An error that ends a task for which nobody waits is told, also where the collector is off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from leasework_lab.sim.cluster import run_seed
from leasework_lab.sim.host import SimNode

from leasework.lease.bids import Bid
from leasework.lease.guard import Guard


def at_call(number: int, method: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def broken(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            raise KeyError("broken")
        return method(*args, **options)

    return broken


@pytest.mark.parametrize(("owner", "name", "number"), [(Guard, "step", 20), (Bid, "__init__", 1)])
def test_an_error_that_ends_a_guard_or_who_wants_a_lock_is_told(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, number: int
) -> None:
    monkeypatch.setattr(owner, name, at_call(number, getattr(owner, name)))
    for seed in range(40):
        told = run_seed(seed).violations
        if any("one of its tasks failed with KeyError" in text for text in told):
            return
    raise AssertionError("nobody was told")


def test_an_error_that_ends_a_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimNode, "start", at_call(1, SimNode.start))
    assert any("one of its tasks failed with KeyError" in t for t in run_seed(1).violations)
