"""The entry point of a campaign's processes."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from leasework.env import Env
from leasework.errors import LeaseworkError
from leasework_lab.chaos.history import Writer
from leasework_lab.chaos.node import serve
from leasework_lab.chaos.producer import produce
from leasework_lab.orphan import end_with_parent

EXIT_REFUSED = 71
"""The exit status if the database was unavailable at the start."""


def main(given: dict[str, Any]) -> None:
    """``given``: ``role``, ``name``, ``history`` (a file), ``pace`` (for a producer, in seconds),
    ``hard_exit`` (for a worker; without it, a node behaves as in a web process)."""
    end_with_parent()
    writer = Writer(Path(given["history"]), Env())
    try:
        asyncio.run(_run(given, writer))
    except LeaseworkError as error:
        writer.note("refused", error=f"{type(error).__name__}: {error}")
        sys.exit(EXIT_REFUSED)


async def _run(given: dict[str, Any], writer: Writer) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if given["role"] == "producer":
        await produce(given["name"], given["pace"], writer, stop)
    else:
        await serve(given["hard_exit"], writer, stop)
