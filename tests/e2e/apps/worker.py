"""What the supervised workers run: jobs that go on until they are killed, and others."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

from leasework import App, Context
from tests.e2e.apps.journal import note

app = App()


@app.task(queue="work")
async def hold(ctx: Context) -> None:
    note("began", ctx.job_id, ctx.attempt)
    await asyncio.Event().wait()


@app.task(queue="work")
async def quick(ctx: Context) -> None:
    note("done", ctx.job_id, ctx.attempt)


@app.task(queue="own", executor="process")
def in_process(ctx: Context) -> None:
    """Runs in a child process, which starts a program."""
    note("child-began", ctx.job_id, ctx.attempt)
    subprocess.run(_program(ctx), check=False)


@app.task(queue="own")
async def with_helper(ctx: Context) -> None:
    """Starts a program of its own, which knows nothing of us."""
    note("child-began", ctx.job_id, ctx.attempt)
    program = await asyncio.create_subprocess_exec(*_program(ctx))
    await program.wait()


def _program(ctx: Context) -> list[str]:
    code = f"import tests.e2e.apps.worker as w; w.live_on({str(ctx.job_id)!r}, {ctx.attempt})"
    return [sys.executable, "-c", code]


def live_on(job: str, attempt: int) -> None:
    """Give signs of life until killed, but not for ever: nobody may be left to do it."""
    for _ in range(6000):
        note("child-lives", job, attempt)
        time.sleep(0.01)
