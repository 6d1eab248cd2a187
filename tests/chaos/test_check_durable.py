"""The check of durable work: what was recorded is not done again, and nothing waits for ever."""

from __future__ import annotations

from typing import Any

import pytest
from leasework_lab.chaos.tables import FinalStep

from tests.chaos.histories import FLOW, FLOW_TOKEN, World, caught, line, saw, step, uuid


@pytest.fixture
def world() -> World:
    return World()


def with_step(world: World, *changed: FinalStep) -> None:
    names = {one.name for one in changed}
    world.change(steps=[*(s for s in world.tables.steps if s.name not in names), *changed])


def test_a_flow_that_did_each_step_once_holds(world: World) -> None:
    assert not world.verdict()
    assert world.checks()["durable"].looked_at == 10


def test_a_recorded_step_that_a_later_run_repeats_is_seen(world: World) -> None:
    fields = {"ref": "flow", "job": str(FLOW), "step": "first"}
    world.two.lines.append(line("step", 9.0, token=FLOW_TOKEN, **fields))
    assert not world.verdict()  # the run that began before may be out of date
    later = {"token": FLOW_TOKEN + 1, "node": uuid(2), "attempt": 1, "task": "flow", **fields}
    world.two.lines += [line("start", 9.0, **later), line("step", 9.1, **later)]
    caught(world, "durable", "ran first again")


def test_a_run_that_sees_something_else_than_what_is_recorded_is_seen(world: World) -> None:
    world.two.lines.append(saw(9.0, "last", "another"))
    caught(world, "durable", "saw last = another, recorded: v-last")


def test_results_of_children_in_another_order_are_seen(world: World) -> None:
    gathered = world.tables.steps[-1]
    with_step(world, gathered._replace(result=gathered.result[::-1]))
    next(e for e in world.two.of("saw") if e["step"] == "gather")["value"].reverse()
    caught(world, "durable", "gathered")


@pytest.mark.parametrize("times", [0, 2])
def test_an_effect_without_its_record_and_one_that_is_there_twice_are_seen(
    world: World, times: int
) -> None:
    mine = ("flow pay", FLOW, FLOW_TOKEN)
    world.change(effects=[e for e in world.tables.effects if e != mine] + [mine] * times)
    caught(world, "durable", "paid under")


def test_a_signal_that_is_taken_twice_or_was_never_sent_is_seen(world: World) -> None:
    with_step(world, step("go[1]", result={"payload": "s-go[0]"}))
    caught(world, "durable", "signal s-go[0] was taken 2 times")
    with_step(world, step("go[1]", result={"payload": "s-of-nobody"}))
    caught(world, "durable", "nobody sent signal s-of-nobody")


def test_a_job_that_waits_for_ever_and_a_signal_that_is_lost_are_seen(world: World) -> None:
    with_step(world, step("go[1]", open=True, result=None))
    world.change(
        jobs=[j._replace(state="scheduled") if j.id == FLOW else j for j in world.tables.jobs]
    )
    found = world.verdict()["durable"]
    assert (
        "flow 00000000-0000-0000-0000-000000000406 is scheduled, and waits for ['go[1]']" in found
    )
    assert any("signal s-go[1], answer to" in text and "is lost" in text for text in found)
    world.change(inbox={"s-go[1]"})
    assert not any("is lost" in text for text in world.verdict()["durable"])


def test_a_wait_that_ended_without_the_signal_that_was_sent_to_it_is_seen(world: World) -> None:
    with_step(world, step("go[1]", result=None))
    caught(world, "durable", "signal s-go[1]")


def test_a_flow_that_completed_without_a_step_is_seen(world: World) -> None:
    world.change(steps=[s for s in world.tables.steps if s.name != "sleep"])
    caught(world, "durable", "is completed without sleep")


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"jobs": 1}, "1 of 2 jobs"), ({"ended": False}, "has not ended"), ({"calls": 2}, "called 2"),
     ({"calls": 0}, "called 0")],
)  # fmt: skip
def test_a_batch_that_is_not_whole_has_not_ended_or_calls_otherwise_than_once_is_seen(
    world: World, changed: dict[str, Any], words: str
) -> None:
    first, *others = world.tables.batches
    world.change(batches=[first._replace(**changed), *others])
    caught(world, "durable", words)
