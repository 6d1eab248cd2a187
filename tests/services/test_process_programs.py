"""Programs that a handler in a child process starts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.services import process_handlers as handlers
from tests.services.test_process_executor import Bench, dead
from tests.support.wait import until_async


@pytest.mark.parametrize("end", ["timeout", "cancel", "fenced", "ends", "closed"])
async def test_what_a_handler_has_started_dies_with_its_child(tmp_path: Path, end: str) -> None:
    bench = Bench()
    timeout = 0.5 if end == "timeout" else None
    file = tmp_path / "pid"
    claim = bench.start(handlers.start_program, timeout, file=str(file), ends=end == "ends")
    program = int(await until_async(file.read_text, 30, ignoring=(FileNotFoundError,)))
    if end == "cancel":
        claim.end("cancel")
    elif end == "fenced":
        await asyncio.to_thread(bench.pool.kill_all)
    elif end == "closed":
        await bench.pool.close()
    await bench.outcome(claim)
    await until_async(lambda: dead(program), 20, "the end of the program")
    await bench.pool.close()
    assert await bench.executor.wait_idle(10)
