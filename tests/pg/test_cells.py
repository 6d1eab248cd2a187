"""An application of several cells: jobs go to the cell of their key, and a cell that is away harms
no other."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from leasework import App, Cells, Context
from leasework.config import Settings
from leasework.errors import BadSchedule, ConfigError
from leasework.pg.schema import migrate
from tests.support import postgres as servers
from tests.support.wait import until_async

AWAY = "host=127.0.0.1 port=1 dbname=away"
apart = App(name="apart", recover_within=9.0)


@apart.task(executor="process")
def where(ctx: Context) -> str:
    """The database of the App that a child process finds."""
    return str(conninfo_to_dict(apart.settings.dsn)["dbname"])


@pytest.fixture
def two(postgres: Any, template: str, admin: Any) -> Iterator[dict[str, str]]:
    """The DSNs of two cells with the schema."""
    with (
        servers.database(postgres.dsn, template=template, admin=admin) as one,
        servers.database(postgres.dsn, template=template, admin=admin) as other,
    ):
        yield {"one": one, "two": other}


def application() -> tuple[App, Any, list[tuple[int, str]]]:
    app = App(name="shop", recover_within=9.0, call_timeout=3.0)
    ran: list[tuple[int, str]] = []

    @app.task()
    async def note(ctx: Context, n: int) -> int:
        ran.append((n, ctx.state))
        return n

    return app, note, ran


@asynccontextmanager
async def closing(cells: Cells) -> AsyncIterator[Cells]:
    try:
        yield cells
    finally:
        await cells.close()


async def test_a_job_runs_in_the_cell_of_its_key(two: dict[str, str]) -> None:
    app, note, ran = application()

    @asynccontextmanager
    async def state(cell: App) -> AsyncIterator[str]:
        yield next(name for name, dsn in two.items() if dsn == cell.settings.dsn)

    app.process_lifespan = state
    async with closing(Cells(app, two, schedules="one", pins={0: "two"})) as cells, cells.nodes():
        jobs = [await cells.of(n).enqueue(note.job(n)) for n in range(20)]
        assert [await job.wait(timeout=30) for job in jobs] == list(range(20))
        for name, part in cells.apps.items():
            assert {job.id for job in await part.jobs(limit=100)} == {
                job.id for n, job in enumerate(jobs) if cells.name_of(n) == name
            }
        assert cells.name_of(0) == "two"
    assert sorted(ran) == [(n, cells.name_of(n)) for n in range(20)]
    assert {name for _, name in ran} == {"one", "two"}


async def test_a_child_process_belongs_to_the_cell_of_its_job(two: dict[str, str]) -> None:
    cells = Cells(apart, two, schedules="one", pins={"1": "one", "2": "two"})
    async with closing(cells), cells.nodes():
        for key, name in (("1", "one"), ("2", "two")):
            job = await cells.of(key).enqueue(where.job())
            assert await job.wait(timeout=60) == conninfo_to_dict(two[name])["dbname"]


async def test_schedules_run_in_one_cell(two: dict[str, str]) -> None:
    app, _, _ = application()

    @app.every(seconds=1, name="tick")
    @app.task()
    async def tick() -> None: ...

    async with closing(Cells(app, two, schedules="two")) as cells, cells.nodes():

        async def completed() -> bool:
            return bool(await cells.apps["two"].jobs(state="completed", task=tick.name))

        await until_async(completed, 30, "a tick")
        assert await cells.apps["one"].jobs(task=tick.name) == []
        assert await cells.apps["one"].schedules.list() == []
        with pytest.raises(BadSchedule, match="tick"):
            await cells.apps["two"].schedules.put("tick", tick, every=1)
        with pytest.raises(BadSchedule, match="tick"):
            await asyncio.to_thread(cells.apps["two"].sync.schedules.put, "tick", tick, every=1)


async def test_a_cell_that_is_away_at_the_start_stops_no_other_and_joins_later(
    two: dict[str, str], caplog: pytest.LogCaptureFixture, own_postgres: Callable[..., Any]
) -> None:
    app, note, _ = application()
    server = own_postgres()
    await migrate.apply(Settings(dsn=server.dsn))
    os.kill(server.pid, signal.SIGQUIT)  # an immediate shutdown
    databases = {"one": two["one"], "away": server.dsn}
    async with closing(Cells(app, databases, schedules="one")) as cells, cells.nodes():
        keys = {cells.name_of(n): n for n in range(20)}
        job = await cells.of(keys["one"]).enqueue(note.job(keys["one"]))
        assert await job.wait(timeout=30) == keys["one"]
        await until_async(
            lambda: "the cell away has no node here" in caplog.text, 60, "the warning"
        )
        server.restart()
        job = await cells.of(keys["away"]).enqueue(note.job(keys["away"]))
        assert await job.wait(timeout=60) == keys["away"]


async def test_a_stop_does_not_wait_for_a_cell_that_is_away(two: dict[str, str]) -> None:
    app, _, _ = application()
    async with closing(Cells(app, {"one": two["one"], "away": AWAY}, schedules="one")) as cells:
        async with cells.nodes():
            reports = await cells.apps["one"].reports()

            async def joined() -> bool:
                return bool(await reports.nodes(10))

            await until_async(joined, 30, "the node of the other cell")
        assert await reports.nodes(10) == []


async def test_the_error_of_the_block_and_wrong_queues_are_raised_as_they_are(
    two: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "leasework")
    app, _, _ = application()
    async with closing(Cells(app, two, schedules="one")) as cells:
        with pytest.raises(LookupError, match="mine"):
            async with cells.nodes():
                raise LookupError("mine")
        with pytest.raises(ConfigError, match="number of slots"):
            async with cells.nodes(queues={"default": 0}):
                await asyncio.Event().wait()


async def test_a_definition_after_the_start_is_refused(two: dict[str, str]) -> None:
    app, _, _ = application()
    async with closing(Cells(app, two, schedules="one")) as cells, cells.nodes():
        await until_async(lambda: bool(app.taking_part), 30, "a node")
        with pytest.raises(ConfigError, match="too late"):
            app.task(name="late")(lambda: None)
