"""What the workers of the measurement run."""

from __future__ import annotations

import os
import signal

from leasework import App, Context
from leasework.errors import LostLock
from tests.support.wait import forever

app = App()


@app.task(name="quick")
async def quick() -> None: ...


@app.task(name="long")
async def long() -> None:
    await forever()


@app.task(name="poison")
async def poison() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="page")
async def page(ctx: Context, **breach: object) -> None: ...


@app.task(name="flaky")
async def flaky() -> None:
    raise ConnectionRefusedError("the mail server does not answer")


@app.task(name="broken", max_attempts=1)
async def broken() -> None:
    raise ValueError("no such customer")


@app.task(name="holds_lock", max_attempts=1)
async def holds_lock() -> None:
    try:
        async with app.advisory_lock("engine", scope="session"):
            await forever()
    except LostLock:
        await forever()


if os.environ.get("DETECTION_FAILING"):
    app.every(seconds=1, name="report")(broken)

if os.environ.get("DETECTION_SCHEDULE"):

    @app.every(seconds=1, missed="skip", name="each-second", grace_seconds=1)
    @app.task(name="tick")
    async def tick() -> None: ...
