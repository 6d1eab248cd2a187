"""A real worker's log: JSON on demand, every line, and no secret in it nor in what is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from tests.support.procs import Processes
from tests.support.wait import until

APP = """
import logging
import psycopg
from leasework import App, Context

app = App()

@app.task(name="leaks", max_attempts=1)
async def leaks(ctx: Context, password: str) -> None:
    ctx.log.info("connecting with password=%s", password)
    logging.getLogger("shop").warning("two\\nlines of {'api_key': '%s'}", password)
    psycopg.connect(f"postgresql://u:{password} x@localhost:1/x")

@app.task(name="leaks_in_thread", max_attempts=1)
def leaks_in_thread(password: str) -> None:
    raise ConnectionError(f"postgresql://u:{password}@db/x is away")
"""


def test_each_line_is_json_and_no_secret_is_logged_or_kept(
    migrated: str, tmp_path: Path, procs: Processes
):
    (tmp_path / "leaky.py").write_text(APP)
    dsn = make_conninfo(migrated, password="dsn-hunter22")
    env = {"LEASEWORK_DSN": dsn, "PYTHONPATH": str(tmp_path)}
    worker = procs.start("-m", "leasework", "worker", "leaky:app", "--log", "json", env=env)

    def sql(query: str, *params: Any) -> list[Any]:
        with psycopg.connect(migrated, autocommit=True) as connection:
            return connection.execute(query, params or None).fetchall()

    for task in ("leaks", "leaks_in_thread"):
        job = {"task": task, "max_attempts": 1, "payload": {"password": "hunter22"}}
        sql("select id from leasework.enqueue(%s)", json.dumps(job))
    query = "select task_name, last_error from leasework.jobs where state = 'discarded'"
    until(lambda: len(sql(query)) == 2, 60, "both to fail")
    kinds = "select fields::text from leasework.event where kind = 'job_discarded'"
    until(lambda: len(sql(kinds)) == 2, 60, "the events")
    worker.kill(15)
    assert worker.wait(30) == 0
    kept = dict(sql(query))
    assert kept["leaks"].startswith("ProgrammingError: unexpected spaces found in")
    assert kept["leaks_in_thread"].startswith("ConnectionError: postgresql://u:")
    lines = [json.loads(line) for line in worker.output.splitlines()]
    events = [line["event"] for line in lines if "event" in line]
    assert {"node_started", "job_discarded", "node_stopped"} <= set(events)
    assert any(line["logger"] == "shop" and "two\nlines" in line["message"] for line in lines)
    assert all(line["worker_id"].count(":") == 2 for line in lines)
    everything = worker.output + str(kept) + str(sql("select * from leasework.event"))
    assert "hunter" not in everything
