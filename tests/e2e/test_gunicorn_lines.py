"""Under gunicorn, every line of the log has a time and a level."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.procs import Processes
from tests.support.wait import until

APP = """
import logging
from fastapi import FastAPI
from leasework import App

app = App()

@app.every(seconds=1)
async def tick():
    logging.getLogger("shop").warning("the shop warns")
    raise RuntimeError("the tick failed")

web = FastAPI(lifespan=app.lifespan)
"""
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d.* \[?(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")


@pytest.mark.parametrize("preload", [(), ("--preload",)])
def test_each_line_has_a_time_and_a_level(
    procs: Processes, dsn: str, migrated: str, tmp_path: Path, preload: tuple[str, ...]
) -> None:
    (tmp_path / "shop_app.py").write_text(APP)
    command = [
        *(sys.executable, "-m", "gunicorn", "-w", "1", "-k", "uvicorn_worker.UvicornWorker"),
        *("-b", "127.0.0.1:0", "--chdir", str(tmp_path)),
        *(*preload, "shop_app:web"),
    ]
    process = procs.run(command, name="gunicorn", env={"LEASEWORK_DSN": dsn})
    wanted = ("the shop warns", "job_failed")
    until(lambda: all(text in process.output for text in wanted), 60, "the lines")
    lines = [line for line in process.output.splitlines() if line]
    bare = [line for line in lines if not LINE.search(line) and not line.startswith((" ", "\t"))]
    assert not bare, "\n".join(lines)
