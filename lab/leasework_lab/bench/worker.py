"""One worker process of a measurement, and the task that it runs."""

from __future__ import annotations

from typing import Any

from leasework.app import App, Task
from leasework.cli.work.worker import run_worker
from leasework_lab.bench.tables import SCHEMA
from leasework_lab.orphan import end_with_parent


def make_app(dsn: str | None = None) -> App:
    """An App with default settings; ``dsn`` None: from the environment."""
    return make_app_and_task(dsn)[0]


def make_app_and_task(dsn: str | None = None) -> tuple[App, Task[Any, Any]]:
    app = App(dsn, name="bench", schema=SCHEMA)

    @app.task(name="noop")
    async def noop(text: str, sent: float | None = None) -> float | None:
        """``sent``: CLOCK_BOOTTIME at the enqueuing call. Returns the wait in seconds."""
        return None if sent is None else app.env.boot_now() - sent

    return app, noop


def main() -> None:
    end_with_parent()
    run_worker("leasework_lab.bench.worker:make_app", {}, None, execute=True)
