"""Hand-made histories: a small campaign in which all is well, for tests to break."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from leasework_lab.chaos.checkers import Check, judge
from leasework_lab.chaos.history import Campaign, Fault, Process
from leasework_lab.chaos.tables import FinalBatch, FinalJob, FinalStep, FinalTick, Tables

from leasework.config import Timings

TIMES = Timings.derive(9.0)
NODES = ("0a", "0b")
STEPS = ("first", "pay", "last", "spawn[0]", "spawn[1]", "sleep", "go[0]", "go[1]")
PARTS = [[str(UUID(int=n)), "completed", f"flow part {n}", None] for n in range(3)]
"""What the flow gathered."""
START = datetime(2026, 1, 1, tzinfo=UTC)
FLOW, FLOW_TOKEN = UUID(int=1030), 40
"""A job with steps, and the claim under which it did them."""


def uuid(number: int) -> str:
    return str(UUID(int=number))


def line(kind: str, at: float, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "at": at, **fields}


def beats(of: str, me: str, token: int, start: float, end: float) -> list[dict[str, Any]]:
    """A belief from ``start`` to ``end``, renewed every R."""
    fields = {"of": of, "me": me, "token": token}
    lines = [line("gained", start, until=start + TIMES.trust, **fields)]
    at = start + TIMES.renew
    while at < end:
        lines.append(line("renewed", at, until=at + TIMES.trust, **fields))
        at += TIMES.renew
    return [*lines, line("down", end, until=end, why="stopped", **fields)]


def saw(at: float, name: str, value: Any) -> dict[str, Any]:
    """A run of the flow got that from a step."""
    return line("saw", at, ref="flow", job=str(FLOW), token=FLOW_TOKEN, step=name, value=value)


def step(name: str, **changed: Any) -> FinalStep:
    kind = "event" if name.startswith("go") else "step"
    result = {"payload": f"s-{name}"} if kind == "event" else f"v-{name}"
    return FinalStep(FLOW, name, kind, False, result, FLOW_TOKEN)._replace(**changed)


def flow_lines() -> list[dict[str, Any]]:
    """Its run, and the signals to it."""
    fields = {"ref": "flow", "job": str(FLOW), "node": uuid(2), "attempt": 1, "task": "flow",
              "token": FLOW_TOKEN}  # fmt: skip
    answers = [{"ref": f"answer to {FLOW}", "signal": f"s-go[{n}]"} for n in range(2)]
    return [
        line("start", 7.0, **fields),
        line("step", 7.1, step="first", **fields),
        saw(7.2, "first", "v-first"),
        *[line(kind, 7.3, **each) for each in answers for kind in ("signalling", "signalled")],
        saw(8.2, "go[0]", "s-go[0]"),
        saw(8.3, "gather", [f"flow part {n}" for n in range(3)]),
        line("end", 8.5, how="ended", **fields),
    ]


class World:
    """Two nodes and a producer, 40 seconds: node one leads in term 1, then node two in term 2.

    ``one``, ``two``, ``producer`` are the processes; ``campaign`` and ``tables`` are to be
    broken; :meth:`verdict` judges.
    """

    def __init__(self) -> None:
        self.one = Process("node1", "node", 101, 0.0, 60.0, "stopped", 0, hard_exit=True)
        self.two = Process("node2", "node", 102, 0.0, 60.0, "stopped", 0)
        self.producer = Process("producer1", "producer", 103, 0.0, 60.0, "stopped", 0)
        self.one.lines = [
            *beats("node", uuid(1), 11, 1.0, 59.0),
            *beats("leader", uuid(1), 1, 2.0, 20.0),
            line("believed", 20.0, token=1, since=2.1, until=19.9),
            line("looked_back", 2.2, term=1, before={}),
            line("duty_done", 3.0, duty="101-1", term=1, early=True),
        ]
        self.two.lines = [
            *beats("node", uuid(2), 12, 1.0, 59.0),
            *beats("leader", uuid(2), 2, 20.5, 58.0),
            line("looked_back", 20.6, term=2, before={"1": 1}),
            line("duty_done", 21.0, duty="102-1", term=2, early=False),
            *self._run(1, 30, 1, 5.0),
            *self._run(2, 31, 1, 6.0),
            line("completing", 6.3, ref="p-2", job=uuid(1002), token=31),
            line("completed", 6.4, ref="p-2", job=uuid(1002), token=31),
            *flow_lines(),
        ]
        for process in (self.one, self.two):
            process.lines.insert(0, line("up", 1.5))
        self.producer.lines = [
            line("up", 0.5),
            line("intent", 4.0, refs=["p-1"], how="one"),
            line("ack", 4.1, refs=["p-1"], how="one"),
            line("intent", 4.2, refs=["p-2"], how="one"),
            line("ack", 4.3, refs=["p-2"], how="one"),
            line("intent", 5.0, refs=["p-3", "p-4"], how="many"),
            line("unknown", 8.0, refs=["p-3", "p-4"], how="many", error="Unavailable"),
        ]
        processes = [self.one, self.two, self.producer]
        self.campaign = Campaign(
            "process", 1, 3.0, 50.0, 60.0, processes, drained=True, stopping_at=58.0,
            clock=START + timedelta(seconds=6),
        )  # fmt: skip
        self.tables = Tables(
            jobs=[
                self.job(1),
                self.job(2, task="effect", token=31),
                *[self.job(number, task="nap", ref=None) for number in (6, 7)],
                self.job(8, task="page", ref=None),
                self.job(12, task="limited", ref=None),
                self.job(30, task="flow", token=FLOW_TOKEN, ref=None),
                *map(self.tick_job, range(5)),
            ],
            ticks=[self.tick(number) for number in range(5)],
            terms=[("chaos", 1, "host:101:aaaaaa"), ("chaos", 2, "host:102:bbbbbb")],
            effects=[("p-2", UUID(int=1002), 31), ("flow pay", FLOW, FLOW_TOKEN)],
            duties=[("101-1", 1), ("102-1", 2)],
            deadlines=[(UUID(int=1006), "met", None), (UUID(int=1007), "breached", UUID(int=1008))],
            steps=[*map(step, STEPS), step("gather", kind="gather", result=PARTS)],
            batches=[
                FinalBatch(UUID(int=3000), None, 2, True, 2, 1),
                FinalBatch(UUID(int=3001), FLOW, 3, True, 3, 0),
            ],
        )
        self._run_all()

    def _run(self, number: int, token: int, attempt: int, at: float) -> list[dict[str, Any]]:
        fields = {
            "ref": f"p-{number}", "job": uuid(1000 + number), "token": token, "node": uuid(2),
            "attempt": attempt, "task": "note",
        }  # fmt: skip
        return [line("start", at, **fields), line("end", at + 0.5, how="ended", **fields)]

    def job(self, number: int, **changed: Any) -> FinalJob:
        job = FinalJob(
            UUID(int=1000 + number), "note", "completed", f"p-{number}", 1, 0, None, START, 30,
            UUID(int=2), True,
        )  # fmt: skip
        return job._replace(**changed)

    def tick_job(self, number: int) -> FinalJob:
        moment = START + timedelta(seconds=number)
        return self.job(
            1000 + number, task="tick", ref=None, schedule="every-second", scheduled_for=moment
        )

    def tick(self, number: int, **changed: Any) -> FinalTick:
        moment = START + timedelta(seconds=number)
        tick = FinalTick("every-second", moment, moment, "fired", UUID(int=2000 + number))
        return tick._replace(**changed)

    def change(self, **tables: Any) -> None:
        self.tables = replace(self.tables, **tables)
        if self.campaign.own_tasks:
            self._run_all()

    def _run_all(self) -> None:
        """Whatever is completed has run: a line for each job that has none."""
        ended = {(entry["job"], entry["token"]) for entry in self.two.of("end")}
        for job in self.tables.jobs:
            if job.state == "completed" and (str(job.id), job.token) not in ended:
                fields = {"ref": f"run-{job.id}", "job": str(job.id), "token": job.token,
                          "node": uuid(2), "attempt": 1, "task": job.task}  # fmt: skip
                self.two.lines.append(line("start", 8.0, **fields))
                self.two.lines.append(line("end", 8.5, how="ended", **fields))
                ended.add((str(job.id), job.token))

    def end(self, process: Process, code: int, how: str = "") -> None:
        process.code, process.how = code, how or f"ended by itself: {code}"

    def hit(self, kind: str, target: str, start: float, end: float) -> None:
        self.campaign.faults.append(Fault(kind, target, start, end))

    def checks(self) -> dict[str, Check]:
        return {check.name: check for check in judge(self.campaign, self.tables, TIMES)}

    def verdict(self) -> dict[str, list[str]]:
        """The violations by check."""
        return {name: c.violations for name, c in self.checks().items() if c.violations}


def caught(world: World, check: str, words: str) -> None:
    """That check, and no other, and it says so."""
    found = world.verdict()
    assert list(found) == [check], found
    assert words in found[check][0]


def somebodys(world: World) -> None:
    """Of its processes nothing is known."""
    world.campaign.own_tasks = False
    for process in world.campaign.processes:
        process.lines.clear()
        process.started_at = -10.0
