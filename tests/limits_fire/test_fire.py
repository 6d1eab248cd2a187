"""The oracle passes the sound build in a short run, has looked at enough, and catches a broken
build."""

from __future__ import annotations

from tests.limits_fire.__main__ import run


def test_the_sound_build_holds() -> None:
    for seconds in (20, 60):  # on a busy machine, the first run may look at too little
        checks = run(seconds, seed=3, broken="")
        wrong = [check for check in checks if not check.ok]
        if not wrong or any(check.found for check in wrong):
            break
    assert wrong == []


def test_a_broken_build_is_caught() -> None:
    checks = run(20, seed=4, broken="no-lock", drain=20)
    assert [check.name for check in checks if check.found and check.name.startswith("F1")]
