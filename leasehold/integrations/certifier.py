"""The helper process of the gunicorn hooks: writes death certificates.

It reads lines from its standard input (first the settings, then a node and its pid for each dead
worker) and ends when the input ends. Signals to the whole process group are for the others.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from leasehold.app.certify import Certifier, settings_from_text
from leasehold.errors import LeaseholdError
from leasehold.telemetry import logger

CHILDREN_SECONDS = 5.0
"""For the executor's processes of a dead worker to be gone; the kernel killed them with it."""
LEAVE_SECONDS = 5.0
"""For the last certificates, when the arbiter has ended."""


async def serve() -> None:
    """Until the end of the standard input."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    first = await lines.readline()
    if not first:
        return
    certifier = await Certifier.begin(settings_from_text(first.decode()))
    logger.info("the deaths of gunicorn's workers will be certified")
    burials: set[asyncio.Task[None]] = set()
    while line := await lines.readline():
        node, pid = line.decode().split()
        burial = asyncio.create_task(_bury(certifier, UUID(node), int(pid)))
        burials.add(burial)
        burial.add_done_callback(burials.discard)
    await asyncio.gather(*burials)
    if not await certifier.finish(LEAVE_SECONDS):
        logger.warning("not every death was certified: those leases must expire")


async def _bury(certifier: Certifier, node: UUID, pid: int) -> None:
    """The worker's executor processes must be dead before anybody may run its jobs again."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CHILDREN_SECONDS):
            while executor_processes(pid):  # noqa: ASYNC110 — not our children: nobody tells us
                await asyncio.sleep(0.01)
            certifier.report(node, f"gunicorn's worker {pid} ended")
            return
    logger.error("children of worker %s live on: its lease must expire", pid)


def executor_processes(worker: int) -> list[int]:
    """The pids of a worker's ``executor="process"`` children that are alive (Linux; elsewhere
    none is found). Their command line names the module and the worker."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            words = (folder / "cmdline").read_bytes().split(b"\0")
            ours = any(b"leasehold.jobs.process_child" in word for word in words[:5])
            if ours and str(worker).encode() in words[4:7]:
                found.append(int(folder.name))
    return found


def main() -> None:
    """Never ends with a status that gunicorn would take for a worker's."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", level=logging.INFO)
    try:
        asyncio.run(serve())
    except LeaseholdError as error:
        logger.error("no death certificates will be written: %s", error)


if __name__ == "__main__":
    main()
