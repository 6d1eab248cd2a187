"""The job that is enqueued when another one fails for good."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest

from leasework import App
from leasework.errors import BadJob, JobFailed, UnknownTask
from leasework.testing import drain


async def test_a_task_names_the_task_for_its_failures(migrated: str):
    app, seen = App(migrated), []

    @app.task(name="tell", queue="alerts", max_attempts=7)
    async def tell(failure: dict[str, Any]) -> None:
        seen.append((failure["task"], failure["error"].partition("\n")[0]))

    @app.task(name="charge", max_attempts=1, on_failure=tell)
    async def charge(order: int) -> None:
        raise LookupError(f"no order {order}")

    @app.task(name="quiet", max_attempts=1)
    async def quiet() -> None:
        raise LookupError("nobody hears this")

    await charge.enqueue(7)
    await quiet.enqueue()
    await quiet.using(on_failure="tell").enqueue()
    await charge.using(on_failure=None).enqueue(8)
    await drain(app)
    assert sorted(seen) == [
        ("charge", "LookupError: no order 7"),
        ("quiet", "LookupError: nobody hears this"),
    ]
    [first, _] = await app.jobs(task="tell")
    assert (first.queue, first.max_attempts) == ("alerts", 7)
    await app.close()


async def test_a_schedules_job_tells_its_failure_with_the_tick(migrated: str):
    app, seen = App(migrated), []

    @app.task(name="tell")
    async def tell(failure: dict[str, Any]) -> None:
        seen.append(failure)

    @app.every(seconds=1, name="pulse", on_failure=tell)
    @app.task(name="beat", max_attempts=1)
    async def beat() -> None:
        raise LookupError("no pulse")

    async with app.node():
        while not seen:
            [job, *_] = await app.jobs(task="beat") or [None]
            if job is not None:
                with pytest.raises(JobFailed):
                    await (await app.client()).wait(job.id, 30)
    assert seen[0]["schedule"] == "pulse"
    assert seen[0]["tick"].endswith(".000000Z")
    await app.close()


def test_what_cannot_take_a_failure_is_refused_at_the_definition():
    app = App("postgresql://nobody@127.0.0.1:1/nothing")
    bare = app.task(name="bare")(lambda: None)
    with pytest.raises(BadJob, match="bare cannot be called with only failure"):
        app.task(name="a", on_failure=bare)
    with pytest.raises(UnknownTask, match="on_failure is not a task of this application"):
        app.task(name="b", on_failure="bear")
    with pytest.raises(UnknownTask):
        bare.using(on_failure=print)


async def test_a_failure_is_told_in_the_transaction_that_ends_the_job(migrated: str):
    async with await psycopg.AsyncConnection.connect(migrated) as user:
        request = json.dumps({"task": "t", "on_failure": "tell"})
        cursor = await user.execute("select id from leasework.enqueue(%s)", [request])
        row: Any = await cursor.fetchone()
        await user.commit()
        app = App(migrated)
        await app.cancel(UUID(str(row[0])), "not wanted")
        [record] = await app.jobs(task="tell")
        assert record.payload["failure"]["reason"] == "not wanted"
        await app.close()


async def test_a_callback_that_was_edited_by_hand_does_not_keep_its_job_from_ending(
    migrated: str, sql: Any
) -> None:
    app = App(migrated)

    @app.task(name="tell")
    async def tell(failure: dict[str, Any]) -> None: ...

    @app.task(name="broken", max_attempts=1, on_failure=tell)
    async def broken() -> None:
        raise LookupError("no")

    await broken.enqueue()
    await sql('update leasework.job set on_failure = \'{"task": ""}\'')
    [record] = await drain(app)
    assert record.state == "discarded"
    [(fields,)] = await sql("select fields from leasework.event where kind = 'callback_failed'")
    assert fields["name"] == "on_failure of broken"
    await app.close()


@pytest.mark.parametrize(
    "wrong",
    [7, [], "", {"queue": "q"}, {"task": "t", "unique": "k"}, {"task": "t", "priority": 1.5}],
)
async def test_sql_refuses_a_callback_that_cannot_become_a_job(migrated: str, wrong: Any):
    async with await psycopg.AsyncConnection.connect(migrated) as user:
        request = json.dumps({"task": "t", "on_failure": wrong})
        with pytest.raises(psycopg.DataError, match="on_failure"):
            await user.execute("select leasework.enqueue(%s)", [request])
