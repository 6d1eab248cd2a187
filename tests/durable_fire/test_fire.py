"""The oracle passes the sound build in a short run, has looked at enough, and catches a broken
build."""

from __future__ import annotations

from tests.durable_fire.__main__ import run


def test_the_sound_build_holds() -> None:
    checks = run(25, seed=3)
    assert [check for check in checks if not check.ok] == []


def test_a_broken_build_is_caught() -> None:
    checks = run(15, seed=4, broken="deaf-ack", drain=5)
    assert [check.name for check in checks if check.found and check.name.startswith("suspended")]
