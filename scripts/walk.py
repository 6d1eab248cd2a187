"""Prints the walk of one job: every function of leasework that runs from its enqueue to its record.

python -m scripts.walk              # a worker's job, in the order of the first calls
python -m scripts.walk --heartbeat  # one heartbeat of a node's guard
python -m scripts.walk --brief      # only the sums and the functions of each file

Only real code on a real server counts. Services that run beside the job (duties, the guard, the
recorder of events) are left out. LEASEWORK_DSN names the server (default: ``embedded``), on which
the walk has a schema of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import psycopg

from leasework import App
from leasework.lease.guard import Guard

CORE = Path(__file__).parents[1] / "leasework"
OF_THE_JOB = {"walk", "leasework-producer", "leasework-runner", "leasework-acker"}
"""Tasks whose calls belong to the job. Callbacks of the event loop have no task, and belong too."""
SCHEMA = "leasework_walk"
LIMITS = {"job": (22, 125), "heartbeat": (18, 90)}
"""The most files and functions, by what is walked."""
SECONDS = 30.0


class Walk:
    """The functions of leasework that one thread calls, in the order of their first calls."""

    def __init__(self) -> None:
        self.functions: dict[CodeType, str] = {}

    def files(self) -> Counter[str]:
        return Counter(
            Path(code.co_filename).relative_to(CORE).as_posix() for code in self.functions
        )

    @contextmanager
    def record(self, tasks: set[str] | None) -> Iterator[None]:
        """Record this thread's calls, of ``tasks`` alone if given."""

        def on_call(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event != "call" or code in self.functions or not self._counts(code):
                return
            task = asyncio.current_task(_loop()) if tasks and _loop() else None
            if tasks is None or task is None or task.get_name() in tasks:
                self.functions[code] = getattr(code, "co_qualname", code.co_name)

        sys.setprofile(on_call)
        try:
            yield
        finally:
            sys.setprofile(None)

    @staticmethod
    def _counts(code: CodeType) -> bool:
        return code.co_filename.startswith(f"{CORE}{os.sep}") and not code.co_name.startswith("<")


def _loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def job(dsn: str) -> Walk:
    """The second job of a worker, so that imports, connections and plans are there."""
    app, walk, done = App(dsn=dsn, schema=SCHEMA), Walk(), asyncio.Event()

    @app.task
    async def work() -> None:
        done.set()

    asyncio.current_task().set_name("walk")  # type: ignore[union-attr]
    await app.apply_schema()
    found = await app.located()
    async with app.node(queues={"default": 4}):
        for recorded in (False, True):
            done.clear()
            if not recorded:
                first = await work.enqueue()
                await first.wait(timeout=SECONDS)
                continue
            with walk.record(OF_THE_JOB):
                made = await work.enqueue()
                await asyncio.to_thread(_until_recorded, found.dsn, str(made.id))
            assert done.is_set()
    return walk


def _until_recorded(dsn: str, job_id: str) -> None:
    """Wait on a connection and in a thread of our own, so that the wait is no part of the walk."""
    query = f"select 1 from {SCHEMA}.job_done where id = %s"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(int(SECONDS * 100)):
            if connection.execute(query, [job_id]).fetchone():
                return
            threading.Event().wait(0.01)
    raise TimeoutError(f"the job was not recorded within {SECONDS:g} s")


async def heartbeat(dsn: str) -> Walk:
    """One beat of a node that leads, after a few others."""
    walk, beats, done = Walk(), 0, threading.Event()
    beat = Guard.step

    async def recorded(guard: Guard, *arguments: Any) -> Any:
        nonlocal beats
        beats += 1
        if beats != 5:
            return await beat(guard, *arguments)
        with walk.record(None):
            answer = await beat(guard, *arguments)
        done.set()
        return answer

    Guard.step = recorded  # type: ignore[method-assign]
    app = App(dsn=dsn, schema=SCHEMA)
    await app.apply_schema()
    async with app.node(queues={"default": 4}):
        assert await asyncio.to_thread(done.wait, SECONDS), "no heartbeat"
    return walk


def report(name: str, walk: Walk, brief: bool) -> bool:
    """Print the walk. Return whether it is within its limits."""
    files, functions = walk.files(), len(walk.functions)
    if not brief:
        for code, qualified in walk.functions.items():
            print(f"{Path(code.co_filename).relative_to(CORE).as_posix():<40} {qualified}")
        print()
    for path, count in files.most_common():
        print(f"{count:>4}  {path}")
    most_files, most_functions = LIMITS[name]
    print(
        f"{name}: {len(files)} files, limit {most_files}; {functions} functions, {most_functions}"
    )
    return len(files) <= most_files and functions <= most_functions


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--heartbeat", action="store_true")
    parser.add_argument("--brief", action="store_true")
    chosen = parser.parse_args()
    name = "heartbeat" if chosen.heartbeat else "job"
    dsn = os.environ.get("LEASEWORK_DSN", "embedded")
    walk = asyncio.run(globals()[name](dsn))
    return 0 if report(name, walk, chosen.brief) else 1


if __name__ == "__main__":
    sys.exit(main())
