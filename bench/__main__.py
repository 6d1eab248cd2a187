"""``python -m bench MEASURE``: side by side, interleaved; a table, and JSON with ``--json``."""

from __future__ import annotations

import click

from bench.measures import backlog, drain, enqueue, idle, kill, latency, startup


@click.group(context_settings={"show_default": True})
def main() -> None:
    """Side by side with the raw SQL bound and with peers."""


for measure in (drain, latency, idle, enqueue, backlog, kill, startup):
    main.add_command(measure.command)

if __name__ == "__main__":
    main()
