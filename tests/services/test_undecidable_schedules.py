"""Schedules that this host or this release cannot decide silence themselves alone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from leasehold.config import Limits
from tests.services.several import Database, several_apps
from tests.support.wait import until_async

FINE = """
insert into leasehold.schedule (app, name, spec, described, task_name, job, missed, grace_seconds,
                                release, next_at, updated_at)
values ('default', 'fine', '{"kind": "every", "seconds": 1.0, "anchor": "2026-01-01T00:00:00Z"}',
        'each second', 'fine', '{"queue": "default", "priority": 0, "max_attempts": 1,
        "history": true, "payload": {}}', 'latest', 1, 'r', now(), now())
"""
BAD = """
insert into leasehold.schedule (app, name, spec, described, task_name, job, missed, grace_seconds,
                                release, next_at, updated_at)
select app, 'bad' || n, '{"kind": "lunar", "phase": "full"}', described, task_name, job, missed,
       grace_seconds, release, now() - interval '1 hour', now()
from leasehold.schedule, generate_series(1, %s) n where name = 'fine'
"""


@pytest.fixture
async def database(dsn: str, direct_dsn: str) -> AsyncIterator[Database]:
    async with several_apps(dsn, direct_dsn) as database:
        yield database


async def test_more_of_them_than_a_batch_holds_do_not_keep_the_others_from_firing(database):
    app = database.app()  # whose code defines none: it does not bring the rows in line with it
    await database.sql(FINE)

    @app.task(name="fine")
    async def fine() -> None: ...

    async def fired() -> int:
        [(count,)] = await database.sql(
            "select count(*) from leasehold.tick where schedule = 'fine' and state = 'fired'"
        )
        return int(count)

    async with app.node():
        await until_async(fired, 30, "a first tick")
        bad = Limits().batch_rows + 1
        await database.sql(BAD, bad)
        before = await fired()

        async def goes_on() -> bool:
            return await fired() >= before + 4

        await until_async(goes_on, 60, "ticks beside what cannot be decided")

        async def told() -> bool:
            return len(await database.events("schedule_undecidable")) == bad

        await until_async(told, 30, "each to be told, once")
        [first, *_] = await database.events("schedule_undecidable")
        assert first["schedule"].startswith("bad") and "lunar" in first["error"]

        mended = (
            "update leasehold.schedule set spec = (select spec from leasehold.schedule "
            "where name = 'fine') where name = 'bad1'"
        )
        await database.sql(mended)
        tick = "select 1 from leasehold.tick where schedule = 'bad1' and state = 'fired'"
        await until_async(lambda: database.sql(tick), 30, "the one that was mended to fire")
    assert len(await database.events("schedule_undecidable")) == bad
