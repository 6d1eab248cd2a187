"""No option of a job is lost, on whichever path the job is enqueued: alone, many at once, in the
user's transaction, by SQL, and by a schedule."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from leasework import App, Deadline
from leasework.errors import BadSchedule
from leasework.model.job import JOB_OPTIONS
from leasework.tuning import Tuning

Sql = Callable[..., Awaitable[list[Any]]]
ROW = """
select to_jsonb(j) - '{id,seat,created_at,run_at,unique_key,schedule,tick_at,trace}'::text[]
       || jsonb_build_object('later', run_at > now() + interval '30 min',
           'key', unique_key is not null,
           'held', (select held_until is not null from leasework.job_key k where k.job_id = j.id),
           'deadline', (select d.seconds from leasework.deadline d where d.id = j.id))
from leasework.job j where j.id = %s
"""


OTHERWISE = {"on_conflict"}
"""What is not stored: it decides about the job that is there already."""
OF_ONE_JOB = {"run_at", "run_in", "unique", "unique_for"}


@pytest.fixture
def values(app: App) -> dict[str, dict[str, Any]]:
    """By option: a value that is not its default, and what it needs beside it."""

    @app.task(name="breached")
    async def breached(breach: dict[str, Any]) -> None: ...

    @app.task(name="failed")
    async def failed(failure: dict[str, Any]) -> None: ...

    return {
        "queue": {"queue": "mail"},
        "priority": {"priority": 3},
        "max_attempts": {"max_attempts": 9},
        "timeout": {"timeout": 7.0},
        "requeue_after": {"requeue_after": 90.0},
        "history": {"history": False},
        "deadline": {"deadline": Deadline(on_breach=breached, seconds=77)},
        "tags": {"tags": ("vip",)},
        "on_failure": {"on_failure": failed},
        "limits": {"limits": [app.limit("vendor", concurrency=2)]},
        "run_at": {"run_at": datetime(2090, 1, 1, tzinfo=UTC)},
        "run_in": {"run_in": 3600.0},
        "unique": {"unique": "k"},
        "unique_for": {"unique": "k", "unique_for": 600.0},
    }


def test_each_option_has_a_value_here(values: dict[str, Any]) -> None:
    assert {*values} | OTHERWISE == {*JOB_OPTIONS}


@pytest.mark.parametrize("option", sorted({*JOB_OPTIONS} - OTHERWISE))
async def test_an_option_is_stored_on_every_path(
    app: App, sql: Sql, dsn: str, values: dict[str, dict[str, Any]], option: str
) -> None:
    given = values[option]

    @app.task(name="t")
    async def task() -> None: ...

    async def row(job: Any) -> dict[str, Any]:
        [(found,)] = await sql(ROW, [getattr(job, "id", job)])
        await sql("delete from leasework.job_key")
        await sql("delete from leasework.job")
        return dict(found)

    async def many(count: int) -> Any:
        one, *_ = await app.enqueue_many([task.using(**given).job() for _ in range(count)])
        return one

    usual = await row(await task.enqueue())
    alone = await row(await task.using(**given).enqueue())
    assert alone != usual, "it is stored"
    assert await row(await many(2)) == alone
    assert await row(await many(Tuning.copy_rows + 1)) == alone
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        job = await task.using(**given, on=connection).enqueue()
    assert await row(job) == alone
    request = task.using(**given).job().as_request(job.id, 1 << 20)
    [(by_sql,)] = await sql("select id from leasework.enqueue(%s)", [json.dumps(request)])
    assert await row(by_sql) == alone
    if option in OF_ONE_JOB:
        with pytest.raises(BadSchedule, match="has no option"):
            await app.schedules.put("s", task, every=3600, **given)
        return
    await app.schedules.put("s", task, every=3600, **given)
    assert await row(await app.schedules.run_now("s")) == alone
