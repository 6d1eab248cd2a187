"""One application in two releases. A process of ``RELEASE=old`` or ``new`` works, and enqueues jobs
until it is told to end. With ``ENQUEUE=0`` it only works.

The new release removes ``mail``, adds ``language``, and changes the types of ``user`` and
``urgent``. The file ``JOURNAL`` has a line for each acknowledged enqueue and for each run.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from leasework import App, Context

RELEASE, NAME = os.environ["RELEASE"], os.environ["NAME"]
JOBS_PER_SECOND = 50
RUN_SECONDS = 0.05

app = App(name="shop", release=RELEASE)


def note(*words: object) -> None:
    file = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (" ".join(map(str, (NAME, *words))) + "\n").encode())
    os.close(file)


async def ran(ctx: Context, version: int, *arguments: object) -> str:
    note("ran", ctx.job_id, version)
    await asyncio.sleep(RUN_SECONDS)
    return " ".join(map(str, (RELEASE, *arguments)))


if RELEASE == "old":

    @app.task(name="send")
    async def send(ctx: Context, user: int, mail: str, urgent: int = 0) -> str:
        return await ran(ctx, 1, user, mail, urgent)

    def job(n: int) -> Any:
        return send.job(user=n, mail="m", urgent=1)

else:

    @app.task(name="send", version=2)
    async def send(ctx: Context, user: str, language: str, urgent: bool = False) -> str:
        return await ran(ctx, 1 if language == "en" else 2, user, language, urgent)

    @send.upcast(1)
    def from_1(arguments: dict[str, Any]) -> dict[str, Any]:
        user, urgent = arguments["user"], arguments["urgent"]
        return {"user": f"u{user}", "language": "en", "urgent": bool(urgent)}

    def job(n: int) -> Any:
        return send.job(user=f"v{n}", language="ko")


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app.node(queues={"default": 20}):
        print("up", flush=True)
        n = 0
        while os.environ["ENQUEUE"] == "1" and not stop.is_set():
            note("sent", (await app.enqueue(job(n))).id)
            n += 1
            await asyncio.sleep(1 / JOBS_PER_SECOND)
        await stop.wait()
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
