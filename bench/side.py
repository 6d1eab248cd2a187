"""The contender's side: ``python -P bench/side.py MODULE VERB JSON`` in its own environment, with
the checkout of its module on PYTHONPATH.

It says ``ready`` when everything is imported, begins at a line on its standard input, and its
last line is the verb's answer as JSON. SIGTERM ends a ``work``.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

Sent = tuple[int, int, int]
"""A job's number, and CLOCK_MONOTONIC in ns before and after the call that enqueued it."""


async def spaced(
    send: Callable[[int], Awaitable[Any]], jobs: int, first: int, gap: float
) -> list[Sent]:
    """``send`` the numbers from ``first`` on, ``gap`` seconds apart plus or minus a half."""
    rng, sent = random.Random(1), []
    for n in range(first, first + jobs):
        await asyncio.sleep(gap * (0.5 + rng.random()))
        before = time.monotonic_ns()
        await send(n)
        sent.append((n, before, time.monotonic_ns()))
    return sent


Batch = tuple[int, int, int]
"""The first number, how many, and CLOCK_MONOTONIC in ns before they were enqueued."""

BATCH_SECONDS = 0.02


async def streamed(
    send: Callable[[range], Awaitable[Any]], rate: float, seconds: float
) -> list[Batch]:
    """``send`` ranges of numbers, one each 20 ms, ``rate`` numbers a second; late ones follow at
    once."""
    jobs, sent, next_number = int(rate * seconds), [], 0
    start = time.monotonic()
    while next_number < jobs:
        await asyncio.sleep(BATCH_SECONDS)
        until = min(jobs, int((time.monotonic() - start) * rate))
        if until > next_number:
            before = time.monotonic_ns()
            await send(range(next_number, until))
            sent.append((next_number, until - next_number, before))
            next_number = until
    return sent


def costed(act: Callable[..., Any], jobs: int, **options: Any) -> dict[str, float]:
    """The answer, and the CPU of this process for each job. What a call costs besides its jobs
    (imports, connections) does not count: it is known from a call with one job."""
    used = []
    for count in (1, 1, jobs):  # the first one imports what is imported when it is used
        before = time.process_time()
        answer = act(jobs=count, **options)
        used.append(time.process_time() - before)
    return {**answer, "cpu_seconds": used[2] - used[1]}


def main(module: str, verb: str, options: dict[str, Any]) -> None:
    action: Callable[..., Any] = getattr(
        importlib.import_module(f"bench.contenders.{module}"), verb
    )

    def act(**options: Any) -> Any:
        answer = action(**options)
        return asyncio.run(_wait(answer)) if inspect.isawaitable(answer) else answer

    print("ready", flush=True)
    sys.stdin.readline()
    answer = costed(act, **options) if options.pop("costed", False) else act(**options)
    print(json.dumps(answer), flush=True)


async def _wait(answer: Awaitable[Any]) -> Any:
    return await answer


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
