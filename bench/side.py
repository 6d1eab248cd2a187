"""The contender's side: ``python -m bench.side MODULE VERB JSON`` in its own environment.

It says ``ready`` when everything is imported, begins at a line on its standard input, and its
last line is the verb's answer as JSON. SIGTERM ends a ``work``.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

PAYLOAD_TEXT_BYTES = 80


def text_of(size: int) -> str:
    """The second argument of each job."""
    return "x" * size


def pace(rate: float) -> Callable[[], float]:
    """Seconds to wait until the next of ``rate`` events a second; negative when it is late."""
    start, count = time.monotonic(), 0

    def left() -> float:
        nonlocal count
        count += 1
        return start + count / rate - time.monotonic()

    return left


def main(module: str, verb: str, options: dict[str, Any]) -> None:
    contender = importlib.import_module(f"bench.contenders.{module}")
    action: Callable[..., Any] = getattr(contender, verb)
    print("ready", flush=True)
    sys.stdin.readline()
    answer = action(**options)
    if inspect.isawaitable(answer):
        answer = _run(answer)
    print(json.dumps(answer), flush=True)


def _run(answer: Awaitable[Any]) -> Any:
    import asyncio

    async def wait() -> Any:
        return await answer

    return asyncio.run(wait())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
