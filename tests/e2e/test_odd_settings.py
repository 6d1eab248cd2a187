"""Roles and databases with settings of their own: a job's life, directly and behind a pooler."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from leasework import App
from leasework.cli.root import root
from leasework.model.job import JobRequest
from tests.support.pgbouncer import PgBouncer
from tests.support.procs import Processes
from tests.support.requests import job_request
from tests.support.wait import until_async

ROLE = "odd_settings"
ODD = {
    "client_encoding": "LATIN1",
    "datestyle": "German, DMY",
    "intervalstyle": "sql_standard",
    "standard_conforming_strings": "off",
    "escape_string_warning": "off",
    "timezone": "Asia/Kathmandu",
    "bytea_output": "escape",
    "extra_float_digits": "-9",
    "statement_timeout": "2s",
    "idle_in_transaction_session_timeout": "1s",
    "idle_session_timeout": "1500",
    "array_nulls": "off",
    "quote_all_identifiers": "on",
    "search_path": "pg_catalog",
    "xmloption": "document",
}


@pytest.fixture(params=["serializable", "SQL style", "pooler"])
def odd(direct_dsn: str, request: Any) -> Iterator[str]:
    """A DSN whose role has these settings."""
    settings = dict(ODD)
    if request.param == "SQL style":
        settings |= {"datestyle": "SQL, MDY", "timezone": "Asia/Kolkata"}
    if request.param == "serializable":
        settings["default_transaction_isolation"] = "serializable"
    if request.param == "pooler":
        del settings["idle_session_timeout"]  # ends the pooler's own connections
    name = conninfo_to_dict(direct_dsn)["dbname"]
    with psycopg.connect(direct_dsn, autocommit=True) as admin:

        def run(statement: str) -> None:
            admin.execute(statement.encode())

        run(f"create role {ROLE} login")
        run(f"alter database {name} owner to {ROLE}")
        for setting, value in settings.items():
            where = f"database {name}" if "isolation" in setting else f"role {ROLE}"
            quoted = value if setting == "search_path" else f"'{value}'"
            run(f"alter {where} set {setting} = {quoted}")
        dsn = make_conninfo(direct_dsn, user=ROLE)
        pooler = PgBouncer(dsn) if request.param == "pooler" else None
        try:
            yield pooler.dsn if pooler else dsn
        finally:
            if pooler:
                pooler.close()
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [ROLE]
            )
            run(f"reassign owned by {ROLE} to current_user")
            run(f"drop owned by {ROLE}")
            run(f"drop role {ROLE}")


async def test_a_jobs_life_under_odd_settings(odd: str, procs: Processes) -> None:
    await cli(odd, "schema", "apply")
    await cli(odd, "schema", "verify")
    env = {"LEASEWORK_DSN": odd, "TEXT": "Straße \\ 서울"}
    arguments = ["-m", "leasework", "worker", "tests.e2e.apps.texts:app"]
    workers = [procs.start(*arguments, name=f"worker-{n}", env=env) for n in range(2)]
    app = App(odd)

    due = datetime.now(UTC).replace(microsecond=123456) + timedelta(hours=3)
    later = await app.enqueue(request("echo", text="later", run_at=due))
    jobs = [await app.enqueue(request("echo", text="서울", unique="a:\\b"))]
    jobs += await app.enqueue_many([request("echo", text="서울") for _ in range(20)])
    async with await psycopg.AsyncConnection.connect(odd) as user:
        jobs.append(await app.enqueue(request("echo", text="서울", unique="b:\\b"), on=user))
    for job in jobs:
        assert await job.wait(60) == {"서울": "서울"}
    assert (await app.get(later.id)).scheduled_for == due
    assert await (await app.enqueue(request("locked", name="a 'lock' \\"))).wait(60)
    ticked = await until_async(lambda: ticks(app), 60, "a tick")
    assert ticked.result == env["TEXT"]

    held = await app.enqueue(request("hold"))
    running = await until_async(lambda: attempt(app, held.id, 1), 30, "the job to run")
    holder = next(w for w in workers if str(w.pid) in running.worker_id.split(":"))
    holder.kill(signal.SIGKILL)
    await until_async(lambda: attempt(app, held.id, 2), 60, "the job to run elsewhere")
    assert await held.cancel()

    for verb in ("jobs", "schedules", "nodes", "leaders", "events", "locks"):
        json.loads(await cli(odd, verb, "--json"))
    await cli(odd, "jobs", "show", str(jobs[0].id))
    await cli(odd, "status", exits=(0, 1))
    report = await cli(odd, "doctor", exits=(0, 1))
    assert "NotImplementedError" not in report and "The server's clock" not in report
    with psycopg.connect(odd) as user:  # behind a pooler on connections that we used as well
        shown = [user.execute(f"show {n}".encode()).fetchone() for n in ("datestyle", "timezone")]
        assert "ISO" not in str(shown) and "UTC" not in str(shown)
    for process in workers:
        assert "Traceback" not in process.output and "service_failed" not in process.output
    await app.close()


# -- helpers ---------------------------------------------------------------------------------------
def request(
    task: str, run_at: datetime | None = None, unique: str | None = None, **arguments: Any
) -> JobRequest:
    return job_request(task, json.dumps(arguments), run_at=run_at, unique=unique)


async def ticks(app: App) -> Any:
    return next(iter(await app.jobs(task="tick", state="completed", limit=1)), None)


async def attempt(app: App, job: Any, number: int) -> Any:
    record = await app.get(job)
    return record if record.state == "running" and record.attempt == number else None


async def cli(dsn: str, *arguments: str, exits: tuple[int, ...] = (0,)) -> str:
    env = {"LEASEWORK_DSN": dsn, "NO_COLOR": "1"}
    done = await asyncio.to_thread(CliRunner().invoke, root, arguments, env=env)
    told = f"{arguments}: {done.output}\n{done.exception!r}"
    assert done.exit_code in exits, told
    assert isinstance(done.exception, SystemExit | None), told  # a crash would exit with 1 too
    return done.stdout
