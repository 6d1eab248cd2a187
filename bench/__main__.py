"""``python -m bench MEASURE``: side by side, interleaved; a table, and JSON with ``--json``."""

from __future__ import annotations

import signal
import sys

import click

from bench import chart, pages
from bench.measures import (
    backlog,
    deadlines,
    drain,
    durable,
    enqueue,
    fleet,
    heartbeats,
    held,
    idle,
    inflight,
    kill,
    latency,
    limits,
    limits_peers,
    locks,
    longjob,
    nodes,
    queues,
    recovery,
    schedules,
    startup,
)


@click.group(context_settings={"show_default": True})
def main() -> None:
    """Side by side with a loop written by hand and with peers."""


for measure in (
    drain,
    fleet,
    inflight,
    latency,
    limits,
    limits_peers,
    idle,
    nodes,
    heartbeats,
    enqueue,
    backlog,
    held,
    schedules,
    deadlines,
    queues,
    locks,
    longjob,
    kill,
    recovery,
    durable,
    startup,
):
    main.add_command(measure.command)

main.add_command(chart.command)
main.add_command(pages.command)

if __name__ == "__main__":
    # ended from outside: stop the server and the workers, remove their folders
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
