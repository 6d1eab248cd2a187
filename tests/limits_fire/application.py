"""The application under fire, and a worker process of it.

The handlers write what they do into a ledger, a line in each write.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from dataclasses import dataclass
from typing import Any

from leasework import App, Backoff, Context, Rate
from leasework.config import Limits
from tests.limits_fire.builds import apply_to_statements

SLOTS = ({"default": 12, "imports": 6}, {"default": 2, "imports": 1})
"""Of a worker: one of these. With few slots, few lanes are chosen at a time."""
RECOVER_WITHIN = 9.0
KEYS = 6
ODD = "a|b%7C"
"""A key with the characters that lanes escape."""


@dataclass(frozen=True)
class Kind:
    """A task, as the driver enqueues it by SQL: its limits as names and keys, by hand."""

    task: str
    limits: tuple[str, ...]
    queue: str = "default"
    keyed: frozenset[str] = frozenset()
    costs: tuple[int, int] | None = None
    most_waiting: int = 40
    seconds: float = 0.03

    def request(self, rng: random.Random) -> dict[str, Any]:
        who = ODD if rng.random() < 0.1 else str(rng.randrange(KEYS))
        cost = rng.randint(*self.costs) if self.costs else None
        limits: list[Any] = []
        for name in self.limits:
            used: dict[str, Any] = {"limit": name}
            if name in self.keyed:
                used["key"] = who
            if cost is not None and name == "tokens":
                used["cost"] = cost
            limits.append(used if len(used) > 1 else name)
        payload = {"seconds": round(rng.expovariate(1 / self.seconds), 3), "who": who,
                   "fate": rng.choices(("ok", "fail", "throttle"), (90, 5, 5))[0]}  # fmt: skip
        job: dict[str, Any] = {
            "task": self.task, "queue": self.queue, "payload": payload, "max_attempts": 500,
        }  # fmt: skip
        if limits:
            job["limits"] = limits
        if self.queue == "imports":
            job["tenant"] = rng.choice(("gold", "iron", "tin"))
        if rng.random() < 0.1:
            job["priority"] = rng.choice((-1, 1))
        if rng.random() < 0.05:
            job["run_in"] = round(rng.random(), 2)
        return job


KINDS = (
    Kind("one", ("one",), keyed=frozenset({"one"})),
    Kind("two", ("two",), keyed=frozenset({"two"}), most_waiting=60),
    Kind("whole", ("whole",)),
    Kind("both", ("whole", "two"), keyed=frozenset({"two"}), most_waiting=60),
    Kind("spaced", ("spaced",), most_waiting=20, seconds=0.01),
    Kind("tokens", ("tokens",), keyed=frozenset({"tokens"}), costs=(1, 40), most_waiting=60),
    Kind("vendor", ("vendor",), keyed=frozenset({"vendor"})),
    Kind("plain", (), most_waiting=20),
    Kind("load", ("region",), queue="imports", keyed=frozenset({"region"}), most_waiting=60),
    Kind("fair", (), queue="imports"),
)


class Ledger:
    """Lines of JSON, appended by all workers."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, ctx: Context, **more: Any) -> None:
        line = {"what": what, "at": time.time(), "job": str(ctx.job_id), "token": ctx.token, **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")


def make_app(dsn: str, ledger: Ledger | None = None) -> App:
    app = App(
        dsn, name="fire", recover_within=RECOVER_WITHIN, limits=Limits(max_crashes=30_000),
        call_timeout=5.0,
    )  # fmt: skip
    limits = {
        "one": app.limit("one", concurrency=1, key="who"),
        "two": app.limit("two", concurrency=2, key="who"),
        "whole": app.limit("whole", concurrency=4),
        "spaced": app.limit("spaced", rate=Rate(15, per=1.0, burst=1)),
        "tokens": app.limit("tokens", rate=Rate(100, per=1.0, burst=60), key="who"),
        "vendor": app.limit("vendor", concurrency=2, rate=Rate(20, per=1.0, burst=5), key="who"),
        "region": app.limit("region", concurrency=3, key="who"),
    }
    app.queue("imports", fair="who", weight={"gold": 3})

    def add(kind: Kind) -> None:
        async def handler(ctx: Context, seconds: float, who: str, fate: str) -> None:
            assert ledger is not None
            ledger.note("start", ctx)
            await asyncio.sleep(seconds)
            if fate == "throttle" and kind.limits and random.random() < 0.5:
                raise limits[kind.limits[-1]].throttled(retry_after=random.uniform(0.1, 0.6))
            if fate == "fail" and random.random() < 0.7:
                raise ValueError("on purpose")
            ledger.note("end", ctx)

        used = [limits[name] for name in kind.limits]
        backoff = Backoff(base=0.1, factor=1.0, longest=0.2)
        app.task(name=kind.task, queue=kind.queue, limits=used, backoff=backoff)(handler)

    for kind in KINDS:
        add(kind)
    return app


def work(dsn: str, ledger: str, broken: str, log: str, slots: dict[str, int]) -> None:
    """Run a worker until SIGTERM. The process's main function."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    random.seed()
    apply_to_statements(broken)
    asyncio.run(_work(make_app(dsn, Ledger(ledger)), slots))


async def _work(app: App, slots: dict[str, int]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app.node(queues=slots, hard_exit=True):
        await stop.wait()
