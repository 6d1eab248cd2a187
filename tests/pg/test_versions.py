"""Versions of a task's arguments: a rolling release fails no job, in either direction."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from leasework import App
from leasework.errors import BadJob, JobFailed
from leasework.model.deadline import Deadline
from leasework.testing import drain
from tests.support.wait import until_async

EACH = 40


def old_release(dsn: str, ran: list[str]) -> App:
    app = App(dsn, name="shop", release="1")

    @app.task(name="send")
    async def send(user: int, mail: str, urgent: int = 0) -> None:
        ran.append(f"old {user} {mail} {urgent}")

    return app


def new_release(dsn: str, ran: list[str]) -> App:
    """``mail`` is gone, ``language`` is new, ``user`` has become text and ``urgent`` a boolean."""
    app = App(dsn, name="shop", release="2")

    @app.task(name="send", version=2)
    async def send(user: str, language: str, urgent: bool = False) -> None:
        assert type(urgent) is bool
        ran.append(f"new {user} {language} {urgent}")

    @send.upcast(1)
    def from_1(arguments: dict[str, Any]) -> dict[str, Any]:
        return {
            "user": f"u{arguments['user']}",
            "language": "en",
            "urgent": bool(arguments.get("urgent", 0)),
        }

    return app


async def test_old_and_new_code_side_by_side_run_each_others_jobs_without_a_failure(
    migrated: str,
) -> None:
    ran: list[str] = []
    old, new = old_release(migrated, ran), new_release(migrated, ran)
    old_send: Any = old.registry.get("send")
    new_send: Any = new.registry.get("send")
    for n in range(EACH):  # before anybody works: each finds jobs of the other
        await old.enqueue(old_send.job(given={"user": n, "mail": "m", "urgent": 1}))
        await new.enqueue(new_send.job(given={"user": f"v{n}", "language": "ko"}))
    async with old.node(queues={"default": 5}), new.node(queues={"default": 5}):
        for n in range(EACH, 2 * EACH):
            await old.enqueue(old_send.job(given={"user": n, "mail": "m", "urgent": 1}))
            await new.enqueue(new_send.job(given={"user": f"v{n}", "language": "ko"}))
        await until_async(lambda: _all_ran(ran), 60, "all jobs")
    of_old = [line for line in ran if " m " in line or " en " in line]
    of_new = [line for line in ran if " ko " in line]
    by_either = (
        {f"old {n} m 1" for n in range(2 * EACH)},
        {f"new u{n} en True" for n in range(2 * EACH)},
    )
    assert len(of_old) == len(of_new) == 2 * EACH
    assert all(line in by_either[0] | by_either[1] for line in of_old)
    assert any(line in by_either[1] for line in of_old), "the new code ran no old job"
    assert set(of_new) == {f"new v{n} ko False" for n in range(2 * EACH)}
    for record in await old.jobs(limit=1000):
        assert (record.state, record.attempt) == ("completed", 1), record
    await old.close()
    await new.close()


async def _all_ran(ran: list[str]) -> bool:
    await asyncio.sleep(0)
    return len(ran) >= 4 * EACH


async def test_a_job_of_a_newer_version_waits_for_a_worker_that_knows_it(
    migrated: str, sql: Any
) -> None:
    ran: list[str] = []
    old, new = old_release(migrated, ran), new_release(migrated, ran)
    task: Any = new.registry.get("send")
    job = await new.enqueue(task.job(given={"user": "v", "language": "ko"}))
    await drain(old)
    record = await old.get(job.id)
    assert (record.state, record.attempt) == ("scheduled", 0)
    assert record.held_because == "unknown_version"
    assert record.last_error == "its arguments have version 2, and this worker knows 1"
    assert await sql("select 1 from leasework.attempt") == [], "it never began"
    async with old.node():
        await until_async(lambda: sql("select 1 from leasework.events where kind = 'job_unknown'"))
        inspector = await old.inspect()

        async def told() -> bool:
            return "no live node knows the task: send (version 2)" in repr(
                await inspector.problems()
            )

        await until_async(told, 30, "the problem")
        async with new.node():
            await job.wait(60)
    assert ran == ["new v ko False"]
    events = await sql("select fields from leasework.events where kind = 'job_unknown'")
    assert {fields["task"] for (fields,) in events} == {"send (version 2)"}
    assert len(events) <= 2, "at most one from each of the two workers"
    await old.close()
    await new.close()


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_upcasts_follow_one_another(migrated: str, kind: str) -> None:
    app, seen = App(migrated), []

    def handle(c: int) -> None:
        seen.append(c)

    async def handle_async(c: int) -> None:
        seen.append(c)

    task: Any = app.task(name="t", version=3)(handle if kind == "thread" else handle_async)
    task.upcast(1)(lambda given: {"b": given["a"] + 1})
    task.upcast(2)(lambda given: {"c": given["b"] * 10})
    async with await psycopg.AsyncConnection.connect(migrated, autocommit=True) as user:
        for request in (
            {"task": "t", "payload": {"a": 1}},
            {"task": "t", "payload": {"b": 2}, "version": 2},
            {"task": "t", "payload": {"c": 3}, "version": 3},
        ):
            await user.execute("select leasework.enqueue(%s)", [Jsonb(request)])
    await drain(app)
    assert sorted(seen) == [3, 20, 20]
    await app.close()


async def test_an_upcast_that_fails_fails_the_attempt_and_says_where(migrated: str) -> None:
    app = App(migrated)
    task: Any = app.task(name="t", version=2, max_attempts=1)(lambda x: x)
    task.upcast(1)(lambda given: {"x": given["gone"]})
    wrong: Any = app.task(name="wrong", version=2, max_attempts=1)(lambda x: x)
    wrong.upcast(1)(lambda given: [given])
    async with await psycopg.AsyncConnection.connect(migrated, autocommit=True) as user:
        for name in ("t", "wrong"):
            request = {"task": name, "payload": {"x": 1}, "max_attempts": 1, "id": str(uuid4())}
            await user.execute("select leasework.enqueue(%s)", [Jsonb(request)])
    records = {record.task_name: record for record in await drain(app)}
    assert records["t"].state == records["wrong"].state == "discarded"
    assert (records["t"].last_error or "").startswith("KeyError: 'gone'")
    assert "the upcast of wrong from version 1 must return the arguments" in (
        records["wrong"].last_error or ""
    )
    await app.close()


async def test_a_version_stays_in_the_history_and_when_the_job_runs_again(migrated: str) -> None:
    app, seen = App(migrated), []

    @app.task(name="t", version=2)
    async def t(x: int) -> None:
        seen.append(x)

    @t.upcast(1)
    def never(given: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("it has version 2")

    jobs = await app.enqueue_many([t.job(1), t.job(2)])  # by COPY
    await drain(app)
    await app.retry(jobs[0].id)
    await drain(app)
    assert sorted(seen) == [1, 1, 2]
    await app.close()


async def test_a_callback_and_a_schedule_have_the_version_of_their_task(migrated: str) -> None:
    app, seen = App(migrated), []

    @app.task(name="tell", version=2)
    async def tell(failure: dict[str, Any] | None = None, breach: dict[str, Any] | None = None):
        seen.append("failure" if failure else "breach")

    @app.task(name="broken", max_attempts=1, on_failure=tell)
    async def broken() -> None:
        raise LookupError("no")

    @app.task(name="late", deadline=Deadline(on_breach=tell, since="enqueued", seconds=0.001))
    async def late() -> None: ...

    await broken.enqueue()
    await late.using(run_in=3600).enqueue()
    async with app.node():
        await until_async(lambda: _two(seen), 30, "both callbacks")
    assert sorted(seen) == ["breach", "failure"]
    await app.close()


async def _two(seen: list[str]) -> bool:
    await asyncio.sleep(0)
    return len(seen) >= 2


@pytest.mark.parametrize("first", [1, 2])
async def test_a_replaced_job_has_the_version_of_its_new_arguments(
    migrated: str, first: int, sql: Any
) -> None:
    ran: list[str] = []
    old, new = old_release(migrated, ran), new_release(migrated, ran)
    given: dict[int, tuple[App, dict[str, Any]]] = {
        1: (old, {"user": 7, "mail": "m"}),
        2: (new, {"user": "v", "language": "ko"}),
    }
    for version in (first, 3 - first):
        app, arguments = given[version]
        task: Any = app.registry.get("send")
        options = task.with_options(
            task.job_options, {"unique": "k", "run_in": 3600, "on_conflict": "replace"}
        )
        await app.enqueue(task.job(given=arguments, options=options))
    await sql("update leasework.job set run_at = now(), ready = true, held_because = null")
    await drain(new)
    assert ran == [{1: "new u7 en False", 2: "new v ko False"}[3 - first]]
    await old.close()
    await new.close()


def test_an_upcast_that_cannot_be_used_is_refused() -> None:
    app = App("postgresql://nobody@127.0.0.1:1/nothing")
    task: Any = app.task(name="t", version=2)(lambda x: x)
    for wrong in (0, 2, 3, "1", True):
        with pytest.raises(BadJob, match="an upcast is from a lower one"):
            task.upcast(wrong)(dict)
    task.upcast(1)(dict)
    with pytest.raises(BadJob, match="two upcasts from version 1"):
        task.upcast(1)(dict)
    for wrong in (0, 1.5, "2", 32768):
        with pytest.raises(BadJob, match="version must be a whole number"):
            app.task(name=f"w{wrong}", version=wrong)(lambda: None)
    with pytest.raises(BadJob, match="no option 'version'"):
        task.using(version=1)


async def test_a_process_gets_the_arguments_of_its_version(migrated: str) -> None:
    from tests.pg import around

    around.app.configure(dsn=migrated)
    request = {"task": "versioned", "payload": {"old": 4}, "max_attempts": 1}
    async with await psycopg.AsyncConnection.connect(migrated, autocommit=True) as user:
        cursor = await user.execute("select id from leasework.enqueue(%s)", [Jsonb(request)])
        row: Any = await cursor.fetchone()
    async with around.app.node():
        try:
            assert await (await around.app.client()).wait(row[0], 60) == 5
        except JobFailed as failed:
            pytest.fail(str(failed))
    await around.app.close()
