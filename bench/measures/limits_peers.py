"""A limit of two running jobs for each key, side by side with peers, while workers are killed: how
many jobs ran beyond it, and how long a dead worker's places stayed empty.

The jobs note their starts and ends themselves, in memory that outlives their process.
"""

from __future__ import annotations

import random
import signal
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import click

from bench.command import common, run
from bench.measures.latency import percentile
from bench.parties import limited
from bench.process import Contender, Side
from bench.report import Result
from bench.server import Server
from bench.workers import Place, Wrong, place

LIMIT = 2
NODES = ("one", "two", "three")
SLOTS = 4
"""Of each worker. One alone cannot run all that the limit allows."""
COLUMNS = {
    "started": "starts",
    "cut_off": "of these killed",
    "beyond": "pairs beyond the limit",
    "slot_p50": "place used again, p50 s",
    "slot_max": "max s",
    "never": "not used again",
    "burned": "attempts without a start",
    "unfinished": "not finished",
    "took": "all finished after s",
}


@dataclass(frozen=True)
class Load:
    jobs: int
    keys: int
    seconds: float
    """How long each job runs."""
    every: float
    fire: float
    """A worker is killed every so many seconds on average, for so many."""
    most: float
    """Seconds to wait for the end after that."""


@dataclass(frozen=True)
class Interval:
    """A run: CLOCK_MONOTONIC in ns. One that was killed ends at the kill."""

    job: int
    start: int
    end: int
    pid: int
    killed: bool


class Fire:
    """Three workers. Any one of them is killed, and started again."""

    def __init__(self, here: Place, load: Load, stack: ExitStack) -> None:
        self._here, self._load, self._stack = here, load, stack
        self.kills: dict[int, int] = {}
        """Process → when it was killed."""
        self._sides = {node: self._started(node) for node in NODES}

    def _started(self, node: str) -> Side:
        load, here = self._load, self._here
        given = {"dsn": here.dsn, "folder": str(here.folder), "entries": 4 * load.jobs + 100}
        side = Side(
            here.contender, "work_limited", **given, seconds=load.seconds, keys=load.keys,
            slots=SLOTS, node=node,
        )  # fmt: skip
        return self._stack.enter_context(side).ready().go()

    def kill(self, node: str) -> None:
        side = self._sides[node]
        side.check()
        self.kills[side.process.pid] = time.monotonic_ns()
        side.stop(signal.SIGKILL)

    def burn(self) -> float:
        """Seconds until all jobs have ended, at most until the load's last moment."""
        began = time.monotonic()
        _wait(lambda: self._here.ledgers.count > 0, 60.0)
        rng = random.Random(1)  # the same for all
        while time.monotonic() < began + self._load.fire:
            time.sleep(self._load.every * (0.4 + 1.2 * rng.random()))
            node = rng.choice(NODES)
            self.kill(node)
            self._sides[node] = self._started(node)
        _wait(lambda: self.ended() == self._load.jobs, self._load.most)
        took = time.monotonic() - began
        for node in NODES:
            self.kill(node)
        return took

    def ended(self) -> int:
        return len({number for number, _ in self._here.ledgers.timed() if number % 2})

    def intervals(self) -> Iterator[Interval]:
        for ledger in self._here.ledgers.all():
            pid = int(ledger.path.stem)
            starts: dict[int, int] = {}
            for number, ns in ledger.timed():
                job, ends = divmod(number, 2)
                if ends:
                    yield Interval(job, starts.pop(job), ns, pid, False)
                else:
                    starts[job] = ns
            for job, ns in starts.items():
                yield Interval(job, ns, self.kills[pid], pid, True)


def _wait(until: Any, seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not until() and time.monotonic() < limit:
        time.sleep(0.1)


def running(runs: list[Interval]) -> list[tuple[int, int]]:
    """How many run, from each moment on. A run that ends when another starts is not beside it."""
    changes = sorted([(r.end, -1) for r in runs] + [(r.start, 1) for r in runs])
    found, count = [], 0
    for at, change in changes:
        count += change
        found.append((at, count))
    return found


def beyond(runs: list[Interval]) -> int:
    """Pairs of jobs of one key that overlapped beyond the limit: each start, with those that ran
    then without room for it."""
    steps = running(runs)
    grown = zip(steps, [(0, 0), *steps], strict=False)
    return sum(max(0, count - LIMIT) for (_, count), (_, before) in grown if count > before)


def places(runs: list[Interval], kills: Collection[int]) -> Iterator[float | None]:
    """Seconds from the kill of a run until its place was used again: until one more runs than there
    are places whose run has ended well. The place that is empty for longest counts as used first.
    None: that did not come, although other jobs of the key started."""
    changes = sorted([(r.end, -1, r) for r in runs] + [(r.start, 1, r) for r in runs], key=_order)
    count, empty = 0, deque[int]()
    for at, change, one in changes:
        count += change
        if change < 0 and one.killed and one.pid in kills:
            empty.append(at)
        elif change > 0 and empty and count > LIMIT - len(empty):
            yield (at - empty.popleft()) / 1e9
    last = max(run.start for run in runs)
    yield from (None for at in empty if at < last)


def _order(change: tuple[int, int, Interval]) -> tuple[int, int]:
    return change[:2]


def measured(server: Server, contender: Contender, load: Load) -> dict[str, float]:
    with place(server, contender) as here, ExitStack() as stack:
        here.call("load_limited", jobs=load.jobs, keys=load.keys)
        fire = Fire(here, load, stack)
        took = fire.burn()
        of_key: dict[int, list[Interval]] = defaultdict(list)
        starts: dict[int, int] = defaultdict(int)
        for one in fire.intervals():
            of_key[one.job % load.keys].append(one)
            starts[one.job] += 1
        if not of_key:
            raise Wrong(f"{contender.name}: no job ran")
        last = list(fire.kills)[: -len(NODES)]  # those at the end do not count
        each = [seconds for runs in of_key.values() for seconds in places(runs, last)]
        seconds = sorted(one for one in each if one is not None)
        unfinished = load.jobs - fire.ended()
        figures: dict[str, float] = {
            "started": sum(starts.values()),
            "cut_off": sum(
                run.killed and run.pid in last for runs in of_key.values() for run in runs
            ),
            "beyond": sum(map(beyond, of_key.values())),
            "never": len(each) - len(seconds),
            "unfinished": unfinished,
        }
        if seconds:
            figures |= {"slot_p50": percentile(seconds, 0.5), "slot_max": seconds[-1]}
        if not unfinished:
            figures["took"] = took
        if attempts := getattr(here.queries, "attempts", None):  # pgqueuer keeps none
            recorded = attempts(here.watcher).items()
            figures["burned"] = sum(max(0, tries - starts[job]) for job, tries in recorded)
        return figures


@click.command("limits-peers")
@common(rounds=1)
@click.option("--jobs", default=1400)
@click.option("--keys", default=5)
@click.option("--ms", default=500.0, help="how long each job runs")
@click.option("--every", default=5.0, help="seconds between two kills, on average")
@click.option("--seconds", default=60.0, help="of kills")
@click.option("--most", default=150.0, help="seconds to wait for the end after that")
def command(
    jobs: int, keys: int, ms: float, every: float, seconds: float, most: float, **options: Any
) -> None:
    """A limit of two jobs for each key, and kill -9 of workers."""
    load = Load(jobs, keys, ms / 1000, every, seconds, most)
    with run(**options, parties=limited) as this:
        said = f"{jobs:,} jobs of {ms:g} ms, {keys} keys, two at once of each; three workers of "
        said += f"{SLOTS} slots, of which one is killed and started again every {every:g} s or so"
        said += f", for {seconds:g} s"
        result = Result("Limits, kill -9", said, COLUMNS, "")
        this.interleave(result, lambda contender: measured(this.server, contender, load))
