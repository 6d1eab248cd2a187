"""The checks of processes: who may end by itself, and what a stop may leave behind."""

from __future__ import annotations

import pytest
from leasework_lab.chaos.history import Process

from tests.chaos.histories import TIMES, World, caught, line, somebodys, uuid


@pytest.fixture
def world() -> World:
    return World()


def test_a_process_that_left_in_good_order_and_left_a_job_behind_is_seen(world: World) -> None:
    world.two.lines += [line("stopping", 58.0), line("left", 59.2)]
    rescued = line("event", 59.5, event="job_rescued", fields={"job": uuid(5), "dead": "h:102:ab"})
    world.one.lines.append(rescued)
    caught(world, "clean stops", "stopped cleanly")
    world.hit("hole", "node2", 58.2, 58.4)
    assert not world.verdict(), "it was cut off while it left"


def test_a_process_that_ends_for_no_reason_is_seen(world: World) -> None:
    world.end(world.two, 1)
    world.two.lines.append(line("event", 59.9, event="node_started", fields={}))
    caught(world, "processes", "ended by itself")
    world.end(world.two, 75)
    caught(world, "processes", "ended by itself")
    world.two.lines.append(line("event", 59.95, event="node_exits", fields={}))
    assert not world.verdict(), "work went on after the grace"


def another(world: World, start: float, end: float) -> Process:
    """In the place of node two, before it: it never came up."""
    early = Process("node2", "node", 104, start, end)
    world.campaign.processes.append(early)
    return early


def test_a_process_that_breaks_before_it_is_up_is_seen(world: World) -> None:
    early = another(world, 10.0, 14.0)
    world.end(early, 1)
    caught(world, "processes", "ended by itself: 1")
    world.end(early, 71)
    caught(world, "processes", "ended by itself: 71")
    for kind, target in (("hole", "node2"), ("backends ended", "database")):
        world.hit(kind, target, 13.0, 16.0)
        assert not world.verdict(), "the database was away when it started"
        world.campaign.faults.clear()
    world.hit("hole", "node1", 13.0, 16.0)
    world.hit("crash", "database", 4.0, 6.0)
    caught(world, "processes", "ended by itself: 71")
    world.hit("crash", "database", 13.0, 14.0)
    early.lines.append(line("up", 12.0))
    caught(world, "processes", "ended by itself: 71")


def test_a_place_in_which_nothing_ever_came_up_is_seen(world: World) -> None:
    world.producer.lines = [entry for entry in world.producer.lines if entry["kind"] != "up"]
    caught(world, "processes", "no process of producer1 ever came up")
    world.producer.lines.append(line("up", 52.0))
    caught(world, "processes", "no process of producer1 ever came up")
    world.campaign.healed_at = 20.0
    assert not world.verdict(), "there was little time"


@pytest.mark.parametrize("code", [1, -6, -11, 70, 71, 75, -15])
def test_a_process_that_crashes_while_it_stops_is_seen(world: World, code: int) -> None:
    world.end(world.two, code, "stopped")
    caught(world, "processes", f"node2 (102) stopped, exit code {code}")


def test_a_process_that_broke_before_it_was_killed_is_seen(world: World) -> None:
    world.end(world.two, -9, "killed")
    assert not world.verdict()
    world.end(world.two, 1, "killed")
    caught(world, "processes", "killed, exit code 1")


def test_who_is_told_to_stop_before_it_listens_dies_of_the_signal(world: World) -> None:
    early = another(world, 10.0, 10.1)
    world.end(early, -15, "stopped")
    assert not world.verdict()
    world.end(early, -15)
    caught(world, "processes", "ended by itself: -15")
    world.end(world.two, -15, "stopped")
    world.campaign.processes.remove(early)
    world.two.lines.append(line("left", 59.5))
    assert not world.verdict(), "its loop was closed"


def test_a_stop_that_breaks_off_is_seen(world: World) -> None:
    world.two.lines.append(line("stopping", 58.0))
    caught(world, "processes", "began to stop but did not finish")
    world.hit("kill", "node2", 58.5, 58.6)
    assert not world.verdict()


def test_only_a_watchdog_kills_and_only_who_did_not_renew(world: World) -> None:
    world.end(world.two, -9)
    caught(world, "processes", "ended by itself: -9")
    world.two.hard_exit = True
    last = world.two.lines[-1]["at"] + 1
    world.two.ended_at = max(e["until"] for e in world.two.of("renewed") if e["of"] == "node")
    assert world.two.ended_at > last
    caught(world, "processes", "ended by itself: -9")
    world.two.ended_at += TIMES.grace
    assert not world.verdict(), "its lease was over, and its grace"


def test_a_watchdog_kills_who_goes_on_after_it_was_fenced(world: World) -> None:
    world.end(world.one, -9)
    world.one.ended_at = 30.5
    caught(world, "processes", "ended by itself: -9")
    fenced = line("event", 30.5 - 2 * TIMES.grace, event="node_fenced", fields={})
    world.one.lines.append(fenced)
    assert not world.verdict()


def test_somebodys_worker_may_fence_itself_and_may_not_crash(world: World) -> None:
    somebodys(world)
    for how in ("", "stopped"):
        for code in (75, -9):
            world.end(world.two, code, how)
            assert not world.verdict(), code
        for code in (1, 71, -6, -11, -15):
            world.end(world.two, code, how)
            caught(world, "processes", f"{how}, exit code {code}" if how else str(code))
    world.end(world.two, 0)
    caught(world, "processes", "ended by itself: 0")


def test_somebodys_worker_may_be_refused_only_while_it_is_cut_off_at_its_start(
    world: World,
) -> None:
    somebodys(world)
    world.end(world.two, 1)
    world.two.started_at = 40.0
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


def test_duties_that_ended_for_good_are_seen(world: World) -> None:
    world.one.lines.append(line("duties_broke", 9.0, error="KeyError(1)"))
    caught(world, "services", "its duties failed with KeyError(1)")


def test_a_leadership_that_was_lost_without_a_fault_is_seen(world: World) -> None:
    world.campaign.profile = "none"
    lost = {"name": "chaos", "term": 1, "why": "expired"}
    world.one.lines.append(line("event", 20.0, event="lease_lost", fields=lost))
    caught(world, "no change without a fault", "lease_lost")
