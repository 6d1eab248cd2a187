"""The check of durable work: what is recorded happens once, and all that waits goes on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from leasework.config import Timings
from leasework.model.states import FINISHED
from leasework_lab.chaos.app import PAID, PARTS, SIGNALS
from leasework_lab.chaos.history import Campaign, Line
from leasework_lab.chaos.tables import FinalJob, FinalStep, Tables

_STATES = frozenset(str(state) for state in FINISHED)
_ALL = frozenset(
    ["first", "pay", "sleep", "gather", "last"]
    + [f"spawn[{number}]" for number in range(SIGNALS)]
    + [f"go[{number}]" for number in range(SIGNALS)]
)
Steps = dict[tuple[str, str], FinalStep]
"""By the job and the step's name."""
Flows = dict[UUID, FinalJob]


def durable(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    steps = {(str(step.job), step.name): step for step in tables.steps}
    flows = {job.id: job for job in tables.jobs if job.task == "flow"}
    yield from _recorded(campaign, steps)
    yield from _paid(tables, flows, steps)
    yield from _signals(campaign, tables)
    yield from _batches(tables)
    yield from _all_done(tables, flows)


def _lines(campaign: Campaign, kind: str) -> list[Line]:
    lines = [line for process in campaign.nodes() for line in process.of(kind)]
    return sorted(lines, key=lambda line: float(line["at"]))


def _recorded(campaign: Campaign, steps: Steps) -> Iterator[str | int]:
    """A run that starts after a step was recorded does not run it again, and every run finds what
    is recorded. (A run that started before may be out of date.)"""
    started = {(line["job"], line["token"]): line["at"] for line in _lines(campaign, "start")}
    known: dict[tuple[str, str], float] = {}
    for line in _lines(campaign, "saw"):
        yield 1
        ref, name, value = line["ref"], line["step"], line["value"]
        known.setdefault((line["job"], name), line["at"])
        step = steps.get((line["job"], name))
        if step is None or step.open:
            yield f"{ref} saw {name} = {value}, which is not recorded"
        elif value != (found := _value(step)):
            yield f"{ref} saw {name} = {value}, recorded: {found}"
        if name == "gather" and _mixed(ref, value):
            yield f"{ref} gathered {value}"
    for line in _lines(campaign, "step"):
        yield 1
        at = known.get((line["job"], line["step"]), float("inf"))
        if started[line["job"], line["token"]] > at:
            yield f"{line['ref']} ran {line['step']} again, which was recorded by {at:.3f}"


def _value(step: FinalStep) -> Any:
    """What a handler gets of it."""
    if step.kind == "event":
        return step.result and step.result["payload"]
    return [part[2] for part in step.result] if step.kind == "gather" else step.result


def _mixed(ref: str, parts: list[str | None]) -> bool:
    """Whether these are results of others or in another order. One that was quarantined has
    none."""
    wanted = [part and f"{ref} part {number}" for number, part in enumerate(parts)]
    return len(parts) != PARTS or parts != wanted


def _paid(tables: Tables, flows: Flows, steps: Steps) -> Iterator[str | int]:
    """The effect of a transactional step and its record are one: both or neither."""
    paid: dict[UUID, list[int]] = defaultdict(list)
    for ref, job, token in tables.effects:
        if ref.endswith(PAID):
            paid[job].append(token)
    for job in flows.keys() | paid.keys():
        yield 1
        step = steps.get((str(job), "pay"))
        recorded = [step.token] if step else []
        if paid[job] != recorded:
            yield f"flow {job} paid under {paid[job]}, and that is recorded under {recorded}"


def _signals(campaign: Campaign, tables: Tables) -> Iterator[str | int]:
    """A signal that was sent is taken once, or waits as long as its job does. None is taken that
    nobody sent, and no wait ends without the signal that was sent to it."""
    waits = [step for step in tables.steps if step.kind == "event" and not step.open]
    taken = Counter(_value(step) for step in waits if step.result)
    for signal, times in taken.items():
        if times > 1:
            yield f"signal {signal} was taken {times} times"
    sending = {line["signal"] for line in _lines(campaign, "signalling")}
    yield from (f"nobody sent signal {signal}" for signal in taken.keys() - sending)
    over = {f"answer to {job.id}" for job in tables.jobs if job.state in _STATES}
    in_vain = {f"answer to {step.job}" for step in waits if not step.result}
    for line in _lines(campaign, "signalled"):
        yield 1
        kept = line["signal"] in tables.inbox or line["ref"] in over - in_vain
        if not kept and line["signal"] not in taken:
            yield f"signal {line['signal']}, {line['ref']}, is lost"


def _batches(tables: Tables) -> Iterator[str | int]:
    """Each is whole and has ended. One that the campaign made has called once."""
    for batch in tables.batches:
        yield 1
        if batch.jobs != batch.total:
            yield f"batch {batch.id} has {batch.jobs} of {batch.total} jobs"
        if not batch.ended:
            yield f"batch {batch.id} has not ended"
        elif batch.calls != (batch.parent is None):
            yield f"batch {batch.id} of {batch.parent or 'the campaign'} called {batch.calls} times"


def _all_done(tables: Tables, flows: Flows) -> Iterator[str | int]:
    """Nothing waits for ever, and a job that is completed has done all of its steps."""
    names: dict[UUID, set[str]] = defaultdict(set)
    waits: dict[UUID, list[str]] = defaultdict(list)
    for step in tables.steps:
        names[step.job].add(step.name)
        if step.open:
            waits[step.job].append(step.name)
    for job in flows.values():
        yield 1
        if job.state not in _STATES:
            yield f"flow {job.id} is {job.state}, and waits for {waits[job.id] or 'nothing'}"
        if job.state == "completed" and (waits[job.id] or names[job.id] != _ALL):
            left = sorted(_ALL - names[job.id]) + waits[job.id]
            yield f"flow {job.id} is completed without {', '.join(left)}"
