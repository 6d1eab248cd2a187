"""Durable jobs: what a step costs, what a kill -9 repeats, and whether a replay of a gather finds
its results; side by side with DBOS and absurd."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import click

from bench.command import Run, common, run
from bench.flows import SHAPES, STEPS, said
from bench.measures import waiting
from bench.measures.drain import emptied
from bench.parties import DURABLE, durable
from bench.process import Contender
from bench.report import Result
from bench.server import Server
from bench.workers import Place, Workers, Wrong, place

ABSURD = "absurd"
NOOP = "leasework, a job of nothing"
SETTLE_SECONDS = 8.0
COSTS = {
    "jobs_per_second": "steps/s",
    "backend_cpu_us": "backend CPU µs/step",
    "server_cpu_us": "server CPU µs/step",
    "wal_bytes": "WAL B/step",
    "worker_cpu_us": "worker CPU µs/step",
}
KILLS = {
    "twice": "steps that ran twice",
    "goes_on": "all go on after s",
    "twice_again": "... started again: twice",
    "goes_on_again": "all go on after s",
}
GATHERS = {
    "right": "replays with the same results",
    "mixed": "with other results",
    "failed": "failed",
    "stuck": "not replayed",
}


@dataclass(frozen=True)
class Load:
    """So many jobs at once, with so many steps; no steps: jobs of nothing."""

    jobs: int
    steps: int
    slots: int
    ms: float = 0.0
    """Each step sleeps so long, more or less a half."""
    shape: str = ""

    @property
    def numbers(self) -> int:
        return self.jobs * max(1, self.steps)


@contextmanager
def loaded(
    server: Server, contender: Contender, load: Load, schema: Path | None
) -> Iterator[Place]:
    """A place where the jobs wait. ``schema``: of absurd."""
    with place(server, contender) as here:
        if contender.name == ABSURD:
            assert schema
            here.watcher.execute(schema.read_bytes())
        what = {"steps": load.steps, "ms": load.ms, "shape": load.shape}
        here.call("load", jobs=load.jobs, what=what)
        here.watcher.execute("analyze")
        yield here


def steps(
    server: Server, contender: Contender, load: Load, schema: Path | None
) -> dict[str, float]:
    """What each step costs, the claims and acks of its job included."""
    with loaded(server, contender, load, schema) as here:
        with here.workers(1, 2 * load.numbers, slots=load.slots) as workers:
            workers.wait_ran(max(1, load.numbers // 20), 0.001)
            figures = emptied(here, workers, load.numbers)
            workers.stop()
        ran = [number for number, _ in here.ledgers.timed()]
        if len(ran) != load.numbers or len(set(ran)) != load.numbers:
            raise Wrong(f"{contender.name}: {load.numbers} steps, {len(ran)} ran")
        if here.finished() != load.jobs:
            raise Wrong(f"{contender.name}: {load.jobs} jobs, {here.finished()} finished")
    return figures


def killed(
    server: Server, contender: Contender, load: Load, again: bool, most: float, schema: Path | None
) -> tuple[int, float | None]:
    """How many steps ran twice, and seconds from the kill -9 of their worker until all jobs have
    gone on; None: not in ``most``. Another worker is alive. ``again``: none is, and the same one is
    started again."""
    options: dict[str, Any] = {
        "entries": 4 * load.numbers,
        "slots": load.slots,
        "limit_seconds": most + 120,
    }
    with loaded(server, contender, load, schema) as here, ExitStack() as stack:
        first = stack.enter_context(here.workers(1, node="one", **options))
        first.wait_ran(load.jobs)
        if not again:
            second = stack.enter_context(here.workers(1, node="two", **options))
            time.sleep(SETTLE_SECONDS)  # it has joined, and seen the other one alive
        first.wait_ran(load.numbers // 2)
        _kill(first)
        at, left = time.monotonic_ns(), _unfinished(here, load)
        if again:
            second = stack.enter_context(here.workers(1, node="one", **options))
        second.wait(lambda: left <= _first_after(here, at).keys() or _over(at, most), 0.01)
        after = _first_after(here, at)
        if left <= after.keys():
            second.wait(lambda: not here.unfinished())
        ran = [number for number, _ in here.ledgers.timed()]
        _kill(second)
    gone_on = (max(after.values()) - at) / 1e9 if left <= after.keys() else None
    return len(ran) - len(set(ran)), gone_on


def _kill(workers: Workers) -> None:
    for side in workers.sides:
        side.stop(signal.SIGKILL)


def _unfinished(here: Place, load: Load) -> set[int]:
    """The jobs with steps that have not begun."""
    begun = Counter(number // STEPS for number in {number for number, _ in here.ledgers.timed()})
    if left := {job for job in range(load.jobs) if begun[job] < load.steps}:
        return left
    raise Wrong(f"{here.contender.name}: all steps had begun at the kill: give each longer")


def _over(at: int, most: float) -> bool:
    return time.monotonic_ns() > at + most * 1e9


def _first_after(here: Place, at: int) -> dict[int, int]:
    """Job → when its first step since then began."""
    found: dict[int, int] = {}
    for number, ns in here.ledgers.timed():
        if ns > at:
            job = number // STEPS
            found[job] = min(found.get(job, ns), ns)
    return found


def replayed(
    server: Server, contender: Contender, load: Load, most: float, schema: Path | None
) -> tuple[dict[str, float], list[str]]:
    """How many jobs found each result at its place in a replay after a kill -9, how many did not,
    how many failed, and how many did not end; and words of errors, and of wrong results."""
    if contender.name == ABSURD:  # what its replay finds does not depend on when it begins
        contender = replace(contender, work=(("lease", 10),))
    options: dict[str, Any] = {
        "entries": 100 * load.jobs,
        "slots": load.slots,
        "limit_seconds": 3 * most,
    }
    with loaded(server, contender, load, schema) as here:
        with here.workers(1, node="one", **options) as first:
            first.wait(lambda: len(said(here.folder)) >= load.jobs)
            _kill(first)
        at, before = time.monotonic_ns(), said(here.folder)
        with here.workers(1, node="one", **options) as second:
            second.wait(lambda: len(_replays(here, before)) == load.jobs or _over(at, most), 0.01)
            replays = _replays(here, before)
            _kill(second)
    wrong = [line for line in replays.values() if line.get("found", [0, 1, 2]) != [0, 1, 2]]
    failed = [line for line in replays.values() if "error" in line]
    words = [line["error"] for line in before + failed if "error" in line]
    figures: dict[str, float] = {
        "right": len(replays) - len(wrong) - len(failed),
        "mixed": len(wrong),
        "failed": len(failed),
        "stuck": load.jobs - len(replays),
    }
    return figures, words[:1] + [f"found {line['found']}" for line in wrong[:1]]


def _replays(here: Place, before: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Job → what its first run since then said."""
    return {line["job"]: line for line in reversed(said(here.folder)[len(before) :])}


@click.group("durable")
def command() -> None:
    """Steps, signals, and batches."""


def with_schema(command: Callable[..., None]) -> Callable[..., None]:
    """The option that absurd needs."""
    path = click.Path(exists=True, dir_okay=False, path_type=Path)
    words = "of absurd: sql/absurd.sql of its repository"
    return click.option("--schema", type=path, help=words)(command)


@contextmanager
def durably(schema: Path | None, **options: Any) -> Iterator[Run]:
    """A run with peers that have steps. Ends the command where absurd has no schema."""
    with run(**options, parties=durable) as this:
        if schema is None and any(one.name == ABSURD for one in this.contenders):
            raise SystemExit("absurd needs --schema: sql/absurd.sql of its repository")
        yield this


@command.command("steps")
@common()
@with_schema
@click.option("--jobs", default=500, help="of 10 steps, 100 at once")
@click.option("--steps", "count", default=2000, help="of one job")
@click.option("--noops", default=20_000, help="jobs of nothing")
def steps_command(jobs: int, count: int, noops: int, schema: Path | None, **options: Any) -> None:
    """What a step of nothing costs."""
    with durably(schema, **options) as this:
        said = f"{jobs:,} jobs of 10 steps of nothing, 100 at once"
        together = Result("Steps, many jobs", said, COSTS, NOOP)
        said = f"one job of {count:,} steps of nothing, and nothing else"
        alone = Result("Steps, one job", said, COSTS, DURABLE.name)
        this.results += [together, alone]
        rows = [(together, NOOP, DURABLE, Load(noops, 0, 0))]
        for one in this.contenders:
            rows.append((together, one.name, one, Load(jobs, 10, 100)))
            rows.append((alone, one.name, one, Load(1, count, 1)))
        for turn in range(this.rounds):
            for result, name, contender, load in rows if turn % 2 == 0 else rows[::-1]:
                figures = steps(this.server, contender, load, schema)
                result.add(name, figures)
                shown = " ".join(f"{key}={figures[key]:.4g}" for key in COSTS)
                click.echo(f"round {turn + 1} {result.measure}, {name}: {shown}", err=True)


@command.command("kill")
@common(rounds=1)
@with_schema
@click.option("--jobs", default=10)
@click.option("--ms", default=1000.0, help="how long each step takes")
@click.option("--most", default=150.0, help="seconds to wait until all go on")
def kill_command(jobs: int, ms: float, most: float, schema: Path | None, **options: Any) -> None:
    """kill -9 in the middle of jobs of 20 steps."""
    load = Load(jobs, 20, jobs, ms)

    def measure(contender: Contender) -> dict[str, float]:
        figures: dict[str, float] = {}
        for suffix in ("", "_again"):
            again = bool(suffix)
            twice, seconds = killed(this.server, contender, load, again, most, schema)
            if seconds is not None:
                figures |= {f"twice{suffix}": twice, f"goes_on{suffix}": seconds}
        return figures

    with durably(schema, **options) as this:
        said = (
            f"{jobs} jobs of 20 steps of {ms:g} ms, killed when half had run; at most {most:g} s;"
        )
        said += " another worker is alive, or the killed one is started again"
        this.interleave(Result("Steps, kill -9", said, KILLS, ""), measure)


@command.command("gather")
@common(rounds=1)
@with_schema
@click.option("--jobs", default=20)
@click.option("--most", default=60.0, help="seconds to wait for the replay")
def gather_command(jobs: int, most: float, schema: Path | None, **options: Any) -> None:
    """asyncio.gather over three branches of steps, a kill -9, and a replay."""

    with durably(schema, **options) as this:
        said = f"{jobs} jobs with three branches of steps of random durations, killed when all had"
        said += f" their results; replays, at most {most:g} s"
        result = Result("Steps, a gather replayed", said, GATHERS, "")
        this.results.append(result)
        for _ in range(this.rounds):
            for shape, contender in product(SHAPES, this.contenders):
                load = Load(jobs, 0, jobs, shape=shape)
                found, words = replayed(this.server, contender, load, most, schema)
                result.add(f"{contender.name}, {shape}", found)
                for line in words:
                    click.echo(f"{contender.name}, {shape}: {line}")


for measure in (waiting.suspended_command, waiting.signals_command, waiting.batch_command):
    command.add_command(measure)
