"""Big arguments and results over a link of a megabyte a second."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from leasework import App
from tests.support.procs import Processes
from tests.support.relay import Relay
from tests.support.wait import until

BYTES_PER_SECOND = 1e6
SIZE = 200_000
JOBS = 40
CALL_TIMEOUT = 2.0
"""Less than a claim of all jobs takes, and than all their results."""

SHOP = """
import os
from leasework import App

app = App(name="shop")

@app.task(name="echo")
async def echo(ctx, text: str) -> str:
    with open(os.environ["JOURNAL"], "a") as journal:
        journal.write(f"{ctx.job_id}\\n")
    return text[::-1]
"""


def enqueueing(dsn: str) -> tuple[App, Any]:
    app = App(dsn, name="shop", call_timeout=CALL_TIMEOUT)

    @app.task(name="echo")
    async def echo(text: str) -> str:
        return text

    return app, echo


def texts(count: int) -> list[str]:
    return [f"{n} ".ljust(SIZE, "x") for n in range(count)]


def test_a_worker_finishes_every_job_once(migrated: str, procs: Processes):
    app, echo = enqueueing(migrated)
    jobs = app.sync.enqueue_many([echo.job(text=text) for text in texts(JOBS)])
    app.sync.close()
    (procs.folder / "shop.py").write_text(SHOP)
    journal = Path(procs.folder / "journal")
    finished = "select count(*) from leasework.jobs where state = 'completed'"
    with (
        Relay(migrated, bytes_per_second=BYTES_PER_SECOND) as link,
        psycopg.connect(migrated) as connection,
    ):
        connection.autocommit = True
        worker = procs.start(
            *("-m", "leasework", "worker", "shop:app"),
            env={
                "LEASEWORK_DSN": link.dsn,
                "LEASEWORK_CALL_TIMEOUT": str(CALL_TIMEOUT),
                "JOURNAL": str(journal),
            },
        )
        until(lambda: connection.execute(finished).fetchone() == (JOBS,), 150, "every job's result")
        rows = connection.execute(
            "select id, attempt, length(result #>> '{}') from leasework.jobs"
        ).fetchall()
        ran = Counter(journal.read_text().split())
        assert ran == {str(job.id): 1 for job in jobs}
        assert {(attempt, length) for _, attempt, length in rows} == {(1, SIZE)}
        worker.stop()


@pytest.mark.parametrize("options", [{}, {"unique": True}], ids=["copied", "as JSON"])
async def test_many_big_jobs_are_enqueued_in_one_call(migrated: str, options: dict[str, Any]):
    with Relay(migrated, bytes_per_second=BYTES_PER_SECOND) as link:
        app, echo = enqueueing(link.dsn)
        requests = [
            echo.using(**({"unique": f"key {n}"} if options else {})).job(text=text)
            for n, text in enumerate(texts(20))
        ]
        jobs = await app.enqueue_many(requests)
        assert len({job.id for job in jobs}) == 20
        await app.close()
    with psycopg.connect(migrated) as connection:
        assert connection.execute("select count(*) from leasework.job").fetchone() == (20,)
