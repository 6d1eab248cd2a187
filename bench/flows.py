"""What a durable handler does, the same for each contender: ``Flows`` has the handler's body, and
is given the contender's own step."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.ledger import Ledger

Step = Callable[..., Awaitable[Any]]
"""``step(name, key, function, *args)`` records what the function returns."""

STEPS = 10_000
"""A job's step has the number ``job * STEPS + step`` in the ledger."""
SHAPES = ("one step each", "two steps each", "two steps each, all of one name")
"""Of the three branches of a gather. All names are different, except in the last one."""
_SAID = "said.jsonl"


class Flows:
    """The handlers of a worker process, with its ledger."""

    def __init__(self, folder: str, entries: int) -> None:
        self._ran = Ledger.of_this_process(folder, entries).recorder(timed=True)
        self._said = Path(folder) / _SAID

    async def run(self, step: Step, n: int, what: dict[str, Any]) -> None:
        """The body of a job's handler. Raises what a step raises."""
        if shape := what.get("shape"):
            await self._gather(step, n, shape)
        elif what["steps"]:
            for number in range(what["steps"]):
                await step("work", number, self._work, n * STEPS + number, what["ms"])
        else:
            self._ran(n * STEPS)

    async def _work(self, number: int, ms: float) -> int:
        self._ran(number)
        if ms:
            await asyncio.sleep(ms / 1000 * (0.5 + random.random()))
        return number

    async def _gather(self, step: Step, n: int, shape: str) -> None:
        """Three branches at once; then a step that does not end while its worker lives, unless the
        job was begun before."""
        again = any(line["job"] == n for line in said(self._said.parent))
        try:
            found = await asyncio.gather(*(self._branch(step, shape, b) for b in range(3)))
        except Exception as error:
            self._say(job=n, error=f"{type(error).__name__}: {error}")
            self._ran(n * STEPS)
            raise
        self._say(job=n, found=found)
        self._ran(n * STEPS)
        if not again:
            await asyncio.sleep(600)

    async def _branch(self, step: Step, shape: str, branch: int) -> int:
        if shape == SHAPES[0]:
            return int(await step(f"branch {branch}", None, self._part, branch))
        names = ["part", "part"] if shape == SHAPES[2] else [f"first {branch}", f"last {branch}"]
        await step(names[0], 2 * branch, self._part, branch)
        return int(await step(names[1], 2 * branch + 1, self._part, branch))

    async def _part(self, branch: int) -> int:
        await asyncio.sleep(random.random() * 0.2)
        return branch

    def _say(self, **what: Any) -> None:
        with self._said.open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), **what}) + "\n")


def said(folder: Path) -> list[dict[str, Any]]:
    """What the runs of a gather found: the worker's ``pid``, ``job``, and ``found`` or
    ``error``."""
    path = folder / _SAID
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
