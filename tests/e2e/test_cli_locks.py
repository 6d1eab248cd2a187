"""``leasework locks`` on a real database: who holds what, and who waits."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

from click.testing import CliRunner

from leasework import App
from leasework.cli.root import root
from tests.support.wait import until_async


async def leasework(dsn: str, *arguments: str) -> str:
    done = await asyncio.to_thread(
        CliRunner().invoke, root, arguments, env={"LEASEWORK_DSN": dsn, "NO_COLOR": "1"}
    )
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done.stdout


async def test_locks_shows_a_leader_a_holder_and_a_waiter(migrated: str) -> None:
    app = App(migrated, release="blue")
    assert await leasework(migrated, "locks") == "No locks are held.\n"
    assert json.loads(await leasework(migrated, "locks", "--json")) == []
    job = uuid4()

    async def rows() -> list[dict[str, Any]]:
        return json.loads(await leasework(migrated, "locks", "--json"))

    async def three() -> list[dict[str, Any]] | None:
        found = [row for row in await rows() if row["name"] in ("default", "nightly")]
        return found if len(found) == 3 else None

    async with app.node(execute=False), app.advisory_lock("nightly", scope="session", job=job):
        waiting = asyncio.create_task(
            app.advisory_lock("nightly", shared=True, timeout=60).acquire()
        )
        lease, holder, waiter = await until_async(three, 30, every=0.2)
        table = await leasework(migrated, "locks")
    assert await waiting
    await app.close()
    assert (lease["locktype"], lease["name"], lease["token"]) == ("lease", "default", 1)
    assert lease["client"].startswith(f"{app.env.host}:{app.env.pid}:")
    assert (holder["name"], holder["granted"], holder["job_id"]) == ("nightly", True, str(job))
    assert (waiter["granted"], waiter["mode"], waiter["state"]) == (False, "ShareLock", "active")
    assert (
        {
            "locktype",
            "classid",
            "objid",
            "objsubid",
            "lock_key",
            "name",
            "pid",
            "mode",
            "granted",
            "waitstart",
            "state",
            "query",
            "job_id",
        }
        <= holder.keys()
        == waiter.keys()
    )
    assert [
        word
        for word in ("leader, term 1", "exclusive", "waits (shared)", "nightly", str(job))
        if word not in table
    ] == []


async def test_status_says_what_kind_of_nodes_and_jobs_it_counts(migrated: str) -> None:
    app, worker = App(migrated), App(migrated)
    async with app.lock("nightly"), worker.node():
        shown = await leasework(migrated, "status")
    await app.close()
    figures = dict(line.split("  ", 1) for line in shown.splitlines() if "  " in line)
    assert figures["nodes"].strip() == "2 live (1 for locks only, 1 of default)"
    assert figures["jobs"].strip() == "0 available, 0 running, 0 scheduled or to be retried"
