"""A process of the campaign that enqueues jobs and records the answers."""

from __future__ import annotations

import asyncio
from typing import Any

from leasework.errors import LeaseworkError
from leasework.model.job import JobRequest
from leasework_lab.chaos.app import ChaosApp
from leasework_lab.chaos.history import Writer

_LANES = 3
_SIZES = {"many": (22, 45), "batch": (2, 6)}
"""How many jobs a call has: many are enough for COPY, and a batch has a callback. Others: one."""
_MIX = (
    ("note", 0.32),
    ("flow", 0.37),
    ("limited", 0.44),
    ("nap", 0.50),
    ("effect", 0.62),
    ("stubborn", 1.0),
)
_NAP_SECONDS = 2.0
"""The longest nap. It is short because jobs with two crashes run alone, one after the other."""
_CALL_SECONDS = 3.0


async def produce(name: str, pace_seconds: float, writer: Writer, stop: asyncio.Event) -> None:
    """Enqueue until ``stop``; each lane waits ``pace_seconds`` on average between two calls."""
    chaos = ChaosApp(None, call_timeout=_CALL_SECONDS)
    producer = _Producer(f"{name}-{chaos.app.env.pid}", chaos, writer, pace_seconds)
    writer.note("up")
    lanes = [asyncio.create_task(producer.lane(stop)) for _ in range(_LANES)]
    try:
        await asyncio.gather(*lanes)
    finally:
        await chaos.app.close()
    writer.note("left")


class _Producer:
    def __init__(self, name: str, chaos: ChaosApp, writer: Writer, pace_seconds: float) -> None:
        self._name = name
        self._chaos = chaos
        self._writer = writer
        self._pace = pace_seconds
        self._env = chaos.app.env
        self._count = 0

    async def lane(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._call()
            try:
                async with asyncio.timeout(self._env.jitter(self._pace, 0.9)):
                    await stop.wait()
            except TimeoutError:
                continue

    async def _call(self) -> None:
        """Make one call, recording the intent before it and the outcome after it."""
        kinds = ("one", "many", "within", "later", "batch")
        kind = self._env.rng.choices(kinds, (4, 1.2, 4, 1, 0.5))[0]
        size = self._env.rng.randint(*_SIZES.get(kind, (1, 1)))
        refs = [f"{self._name}-{self._count + number}" for number in range(size)]
        self._count += size
        jobs = [self._job(ref, kind) for ref in refs]
        self._writer.note("intent", refs=refs, how=kind)
        try:
            if kind == "within":
                await self._within(jobs)
            elif kind == "batch":
                await self._chaos.app.batch(jobs, on_done=self._chaos.tasks["called"])
            else:
                await self._chaos.app.enqueue_many(jobs)
        except LeaseworkError as error:
            # an error does not prove that nothing was written before it
            self._writer.note("unknown", refs=refs, how=kind, error=type(error).__name__)
        else:
            self._writer.note("ack", refs=refs, how=kind)

    async def _within(self, jobs: list[JobRequest[Any]]) -> None:
        """Enqueue in our own transaction, which nobody repeats."""
        async with self._chaos.sessions.one() as session, session.transaction(_CALL_SECONDS):
            for job in jobs:
                await self._chaos.app.enqueue(job, on=session.connection)

    def _job(self, ref: str, kind: str) -> JobRequest[Any]:
        draw = self._env.rng.random()
        task = "note" if kind in _SIZES else next(n for n, most in _MIX if draw < most)
        seconds = round(0.1 + _NAP_SECONDS * self._env.rng.random() ** 1.5, 2)
        of = self._chaos.tasks[task]
        if kind == "later":
            of = of.using(run_in=2 * self._env.rng.random())
        return of.job(ref=ref, seconds=seconds)
