"""The checks of processes: who may end by itself, and what a stop may leave behind."""

from __future__ import annotations

import pytest

from tests.chaos.histories import World, caught, line, somebodys, uuid


@pytest.fixture
def world() -> World:
    return World()


def test_a_process_that_left_in_good_order_and_left_a_job_behind_is_seen(world: World) -> None:
    world.two.lines += [line("stopping", 58.0), line("left", 59.2)]
    rescued = line("event", 59.5, event="job_rescued", fields={"job": uuid(5), "dead": "h:102:ab"})
    world.one.lines.append(rescued)
    caught(world, "clean stops", "left in good order")
    world.hit("hole", "node2", 58.2, 58.4)
    assert not world.verdict(), "it was cut off while it left"


def test_a_process_that_ends_for_no_reason_is_seen(world: World) -> None:
    world.two.how = "ended by itself: 1"
    world.two.lines.append(line("up", 2.0))
    world.two.lines.append(line("event", 59.9, event="node_started", fields={}))
    caught(world, "processes", "ended by itself")
    world.two.how = "ended by itself: 75"
    caught(world, "processes", "ended by itself")
    world.two.lines.append(line("event", 59.95, event="node_exits", fields={}))
    assert not world.verdict(), "work went on after the grace"


def test_a_process_that_breaks_before_it_is_up_is_seen(world: World) -> None:
    world.two.how = "ended by itself: 1"
    caught(world, "processes", "ended by itself: 1")
    world.two.how = "ended by itself: 71"
    assert not world.verdict(), "the database was away when it started"
    world.two.lines.append(line("up", 2.0))
    caught(world, "processes", "ended by itself: 71")


def test_somebodys_worker_may_fence_itself_and_may_not_crash(world: World) -> None:
    somebodys(world)
    for code in (75, -9):
        world.two.how = f"ended by itself: {code}"
        assert not world.verdict(), code
    for code in (0, 1, 71, -6, -11):
        world.two.how = f"ended by itself: {code}"
        caught(world, "processes", f"ended by itself: {code}")


def test_somebodys_worker_may_be_refused_only_while_it_is_cut_off_at_its_start(
    world: World,
) -> None:
    somebodys(world)
    world.two.how, world.two.started_at = "ended by itself: 1", 40.0
    caught(world, "processes", "ended by itself: 1")
    world.hit("hole", "node2", 39.0, 52.0)
    assert not world.verdict()
    world.two.started_at = 30.0
    caught(world, "processes", "ended by itself: 1")


def test_a_process_that_does_not_stop_is_seen(world: World) -> None:
    world.one.how = "did not stop"
    caught(world, "processes", "did not stop")


def test_a_service_that_failed_is_seen(world: World) -> None:
    failed = {"service": "stager", "error": "KeyError: 1"}
    world.one.lines.append(line("event", 9.0, event="service_failed", fields=failed))
    caught(world, "services", "KeyError")


def test_a_leadership_that_was_lost_without_a_fault_is_seen(world: World) -> None:
    world.campaign.profile = "none"
    lost = {"name": "chaos", "term": 1, "why": "expired"}
    world.one.lines.append(line("event", 20.0, event="lease_lost", fields=lost))
    caught(world, "no change without a fault", "lease_lost")
