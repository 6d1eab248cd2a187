"""The checks of runs: what is told as completed, cancelled or poison must have come about."""

from __future__ import annotations

import pytest

from tests.chaos.histories import World, caught, line, uuid


@pytest.fixture
def world() -> World:
    return World()


def without(world: World, kind: str, job: str) -> None:
    world.two.lines[:] = [
        entry for entry in world.two.lines if entry["kind"] != kind or entry["job"] != job
    ]


def test_a_job_that_is_completed_and_did_not_run_is_seen(world: World) -> None:
    without(world, "end", uuid(1006))
    caught(world, "ran", "did not run to its end")


def test_a_job_that_is_completed_under_another_claim_than_the_one_that_ran_is_seen(
    world: World,
) -> None:
    next(e for e in world.two.of("end") if e["job"] == uuid(1001))["token"] = 29
    caught(world, "ran", "is completed under 30")


def test_a_run_that_failed_completes_nothing(world: World) -> None:
    next(e for e in world.two.of("end") if e["job"] == uuid(1001))["how"] = "cancelled"
    caught(world, "ran", "is completed under 30")


def test_an_effect_that_nobody_was_about_to_write_is_seen(world: World) -> None:
    without(world, "completing", uuid(1002))
    caught(world, "ran", "effect")


def test_a_job_that_is_cancelled_by_nobody_is_seen(world: World) -> None:
    world.change(jobs=[world.job(1, state="cancelled"), *world.tables.jobs[1:]])
    caught(world, "ran", "nobody requested that")


def test_a_job_that_is_given_up_as_poison_for_nothing_is_seen(world: World) -> None:
    poison = world.job(1, state="quarantined", crashes=3)
    world.change(jobs=[poison, *world.tables.jobs[1:]])
    caught(world, "ran", "no run of it was cut off")
    without(world, "end", uuid(1001))
    assert not world.verdict()
    world.change(jobs=[poison._replace(crashes=2), *world.tables.jobs[1:]])
    caught(world, "ran", "quarantined after 2 crashes")


def test_a_run_that_ended_when_its_node_was_dead_was_cut_off(world: World) -> None:
    poison = world.job(1, state="quarantined", crashes=3)
    world.change(jobs=[poison, *world.tables.jobs[1:]])
    for entry in world.two.of("down"):
        if entry["of"] == "node":
            entry["why"] = "expired"
    assert not world.verdict()


def test_a_limit_that_is_exceeded_is_seen(world: World) -> None:
    """One job of the limit runs from 8.0 to 8.5 in any case."""
    world.change(jobs=[*world.tables.jobs, world.job(10, task="limited", ref=None)])
    assert not world.verdict()
    assert world.checks()["limits"].looked_at == 2
    world.change(jobs=[*world.tables.jobs, world.job(11, task="limited", ref=None)])
    caught(world, "limits", "as number 3 of at most 2")


def test_a_run_counts_against_its_limit_while_its_node_has_its_lease(world: World) -> None:
    fields = {"token": 28, "node": uuid(1), "attempt": 1, "task": "limited"}
    for number in (20, 21):
        world.one.lines.append(line("start", 7.0, ref="-", job=uuid(1000 + number), **fields))
    caught(world, "limits", "began at 8.000 as number 3")
    for entry in world.one.of("down"):  # frozen, it still runs them
        if entry["of"] == "node":
            entry["until"] = 7.9
    assert "limits" not in world.verdict()
