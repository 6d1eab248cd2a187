"""The helper process of the gunicorn hooks, which writes death certificates (ADR 7).

It reads lines from standard input (the settings, then a node and its pid for each dead worker) and
ends when the input ends. It ignores signals, which are sent to the whole process group.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import suppress
from uuid import UUID

from leasework.app.certify import Certifier
from leasework.config import Settings
from leasework.errors import LeaseworkError
from leasework.jobs.process import kill_processes_of
from leasework.telemetry import logger
from leasework.tuning import Tuning


async def serve() -> None:
    """Run until the end of standard input."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    first = await lines.readline()
    if not first:
        return
    certifier = await Certifier.begin(Settings.from_text(first.decode()))
    logger.info("this process certifies the deaths of gunicorn's workers")
    burials: set[asyncio.Task[None]] = set()
    while line := await lines.readline():
        node, pid = line.decode().split()
        burial = asyncio.create_task(_bury(certifier, UUID(node), int(pid)))
        burials.add(burial)
        burial.add_done_callback(burials.discard)
    await asyncio.gather(*burials)
    if not await certifier.finish(Tuning.certifier_leave_seconds):
        logger.warning(
            "could not report some deaths of workers: their jobs wait until their leases expire"
        )


async def _bury(certifier: Certifier, node: UUID, pid: int) -> None:
    """Report a death once the worker's executor processes are dead: its jobs may then run again."""
    with suppress(TimeoutError):
        async with asyncio.timeout(Tuning.dead_group_seconds):
            while kill_processes_of(pid):  # noqa: ASYNC110 — not our children, so we must poll
                await asyncio.sleep(0.01)
            certifier.report(node, f"gunicorn's worker {pid} ended")
            return
    logger.error("children of worker %s are still alive: its lease must expire", pid)


def main() -> None:
    """Run the helper. It never exits with a status that gunicorn would take for a worker's."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", level=logging.INFO)
    try:
        asyncio.run(serve())
    except LeaseworkError as error:
        logger.error("no death certificates will be written: %s", error)


if __name__ == "__main__":
    main()
