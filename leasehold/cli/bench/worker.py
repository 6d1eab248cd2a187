"""One worker process of a measurement, and what it runs."""

from __future__ import annotations

import os
import sys
import threading

from leasehold.app import App, Task
from leasehold.cli.worker import run_worker
from leasehold.pg.bench import SCHEMA

EXIT_ORPHAN = 70


def make_app(dsn: str | None = None) -> App:
    """An App with defaults; ``dsn`` None is that of the environment."""
    return make_app_and_task(dsn)[0]


def make_app_and_task(dsn: str | None = None) -> tuple[App, Task]:
    app = App(dsn, name="bench", schema=SCHEMA)

    @app.task(name="noop")
    async def noop(text: str, sent: float | None = None) -> float | None:
        """``sent``: CLOCK_BOOTTIME at the call that enqueued; the result is the wait."""
        return None if sent is None else app.env.boot_now() - sent

    return app, noop


def main() -> None:
    threading.Thread(target=_end_with_parent, name="bench-parent", daemon=True).start()
    sys.exit(run_worker("leasehold.cli.bench.worker:make_app", {}, None, execute=True))


def _end_with_parent() -> None:
    """The parent holds the other end of our stdin for as long as it lives."""
    while os.read(0, 1):
        pass
    os._exit(EXIT_ORPHAN)
