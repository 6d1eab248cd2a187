"""A job's result has the type that its handler returns, whichever call enqueued the job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import date
from typing import Any

import psycopg
import pytest

from leasework import App
from leasework.errors import ConfigError
from leasework.testing import drain

MANY = 30
"""Enough for COPY."""


async def test_a_result_is_converted_on_every_path(app: App, direct_dsn: str) -> None:
    @app.task
    async def day(n: int) -> date:
        return date(2030, 1, n)

    @app.task
    async def doubled(n: int) -> int:
        return 2 * n

    keyed = day.using(unique="k", unique_for=3600)
    async with await psycopg.AsyncConnection.connect(direct_dsn) as connection:
        jobs = [
            await day.enqueue(1),
            await app.enqueue(day.job(1)),
            await app.enqueue(day.job(1), on=connection),
            await keyed.enqueue(1),
            await app.enqueue(keyed.job(2)),  # the job that holds the key
            *await app.enqueue_many([day.job(1), day.using(priority=1).job(1)]),
        ]
    many = await app.enqueue_many(day.job(1 + n) for n in range(MANY))
    mixed = await app.enqueue_many([day.job(1), doubled.job(2)])
    await drain(app)
    assert [await job.wait() for job in jobs] == [date(2030, 1, 1)] * len(jobs)
    assert [await job.wait() for job in many] == [date(2030, 1, 1 + n) for n in range(MANY)]
    assert [await job.wait() for job in mixed] == [date(2030, 1, 1), 4]


async def test_a_float_stays_a_float_although_the_database_keeps_a_whole_number(app: App) -> None:
    class Measured(float): ...

    got: list[Any] = []

    @app.task
    async def scale(x: float, more: dict[str, list[float]] | None = None) -> float:
        got.append((x, more))
        return x

    @app.task
    async def all_of(x: float | str) -> dict[str, float]:
        return {"x": float(x)}

    for x in (1e16, 1.7976931348623157e308, -0.0, 5e-324, 3, Measured(0.5)):
        job = await scale.enqueue(x, {"a": [x]})
        many = await app.enqueue_many([all_of.job(x) for _ in range(MANY)])
        await drain(app)
        first, more = got.pop()
        floats = [await job.wait(), (await many[-1].wait())["x"], first, *more["a"]]
        assert floats == [x] * 4
        assert {type(one) for one in floats} == {float}


async def test_a_result_is_converted_for_callers_without_an_event_loop(
    app: App, direct_dsn: str
) -> None:
    @app.task
    async def day(n: int) -> date:
        return date(2030, 1, n)

    def enqueue() -> list[date]:
        with psycopg.connect(direct_dsn) as connection:
            jobs = [
                app.sync.enqueue(day.job(1)),
                app.sync.enqueue(day.job(1), on=connection),
                *app.sync.enqueue_many([day.job(1)]),
            ]
        app.sync.call(drain(app))
        results = [job.wait(timeout=5) for job in jobs]
        app.sync.close()
        return results

    assert await asyncio.to_thread(enqueue) == [date(2030, 1, 1)] * 3


def test_a_call_without_an_event_loop_is_refused_where_it_would_do_nothing(app: App) -> None:
    @app.task
    async def work() -> None: ...

    stored = app.schedules
    calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "enqueue(task.job(…))": lambda: app.enqueue(work.job()),
        "enqueue_many(…)": lambda: app.enqueue_many([work.job()]),
        "schedules.put(…)": lambda: stored.put("a", work, every=60),
        "schedules.pause(…)": lambda: stored.pause("a"),
        "schedules.resume(…)": lambda: stored.resume("a"),
        "schedules.run_now(…)": lambda: stored.run_now("a"),
        "schedules.delete(…)": lambda: stored.delete("a"),
    }
    for instead, call in calls.items():
        with pytest.raises(ConfigError, match="needs a running event loop") as refused:
            call().close()
        assert f"Call app.sync.{instead}, or await" in str(refused.value)
