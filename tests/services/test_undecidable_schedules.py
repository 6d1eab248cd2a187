"""Schedules that this host or this release cannot decide silence themselves alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from leasework.config import Limits
from leasework.tuning import Tuning
from tests.services.several import Database, several_apps
from tests.support.wait import until_async

FINE = """
insert into leasework.schedule (app, name, spec, described, task_name, job, missed, grace_seconds,
                                release, next_at, updated_at)
values ('default', 'fine', '{"kind": "every", "seconds": 1.0, "anchor": "2026-01-01T00:00:00Z"}',
        'each second', 'fine', '{"queue": "default", "priority": 0, "max_attempts": 1,
        "history": true, "payload": {}}', 'latest', 1, 'r', now(), now())
"""
BAD = """
insert into leasework.schedule (app, name, spec, described, task_name, job, missed, grace_seconds,
                                release, next_at, updated_at)
select app, 'bad' || n, '{"kind": "lunar", "phase": "full"}', described, task_name, job, missed,
       grace_seconds, release, now() - interval '1 hour', now()
from leasework.schedule, generate_series(1, %s) n where name = 'fine'
"""

REFUSED = """
insert into leasework.schedule (app, name, spec, described, task_name, job, missed, grace_seconds,
                                release, next_at, updated_at)
select app, 'refused' || n, spec, described, task_name,
       case mod(n, 3) when 0 then job || '{"priority": 99999}'
                  when 1 then job || '{"timeout": "soon"}'
                  else job || '{"deadline": {"seconds": 60, "since": "fixed", "at": "soon"}}' end,
       missed, grace_seconds, release, now(), now()
from leasework.schedule, generate_series(1, 9) n where name = 'fine'
"""
ODD = """
insert into leasework.schedule (app, name, spec, described, task_name, job, missed, grace_seconds,
                                release, next_at, updated_at)
select app, odd.name, odd.spec::jsonb, described, task_name, job, missed, grace_seconds, release,
       now() - interval '1 hour', now()
from leasework.schedule s, (values
    ('digits', '{"kind": "every", "seconds": 1' || repeat('0', 5000) || '}'),
    ('deep', '{"kind": ' || repeat('[', 3000) || repeat(']', 3000) || '}'),
    ('infinite', '{"kind": "lunar", "phase": 1' || repeat('0', 400) || '.5}'),
    ('exact', '{"kind": "lunar", "phase": 1.00000000000000000000001}')) odd (name, spec)
where s.name = 'fine'
"""
TICKS = "select 1 from leasework.tick where schedule like %s and state = 'fired'"
FIRED = TICKS.replace("1", "schedule", 1)

MANY = """
insert into leasework.schedule (app, name, spec, described, task_name, job, missed, grace_seconds,
                                release, next_at, updated_at)
select app, 'many' || n, '{"kind": "every", "seconds": 86400, "anchor": "2026-01-01T00:00:00Z"}',
       described, task_name, job, 'latest', 1e6, release, date_trunc('day', now()), now()
from leasework.schedule, generate_series(1, 400) n where name = 'fine'
"""
SLOW = """
create function slow() returns trigger language plpgsql as $$
begin perform pg_sleep(0.01); return new; end $$;
create trigger slow before insert on leasework.tick for each row execute function public.slow()
"""
"""So 400 ticks take four seconds."""

BEHIND = """
insert into leasework.schedule (app, name, spec, described, task_name, job, missed, grace_seconds,
                                release, high_water, next_at, updated_at)
select app, 'behind' || n, spec, described, task_name, job, 'all', grace_seconds, release,
       date_trunc('second', now()) - interval '401 s',
       date_trunc('second', now()) - interval '400 s', now()
from leasework.schedule, generate_series(1, 6) n where name = 'fine'
"""


@pytest.fixture
async def database(dsn: str, migrated: str) -> AsyncIterator[Database]:
    async with several_apps(dsn, migrated) as database:
        yield database


@asynccontextmanager
async def firing(database: Database) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """A node beside whose bad schedules ``fine`` fires. What it gives waits for so many more ticks
    of that."""
    app = database.app()  # whose code defines none: it does not bring the rows in line with it
    await database.sql(FINE)

    @app.task(name="fine")
    async def fine() -> None: ...

    async def goes_on(ticks: int) -> None:
        wanted = len(await database.sql(TICKS, "fine")) + ticks

        async def fired() -> bool:
            return len(await database.sql(TICKS, "fine")) >= wanted

        await until_async(fired, 60, f"{ticks} ticks")

    async with app.node():
        yield goes_on


async def test_more_of_them_than_a_batch_holds_do_not_keep_the_others_from_firing(database):
    async with firing(database) as goes_on:
        await goes_on(1)
        bad = Limits().batch_rows + 1
        await database.sql(BAD, bad)
        await goes_on(4)

        async def told() -> bool:
            return len(await database.events("schedule_undecidable")) == bad

        await until_async(told, 30, "each to be told, once")
        [first, *_] = await database.events("schedule_undecidable")
        assert first["schedule"].startswith("bad") and "lunar" in first["error"]

        mended = (
            "update leasework.schedule set spec = (select spec from leasework.schedule "
            "where name = 'fine') where name = 'bad1'"
        )
        await database.sql(mended)
        await until_async(
            lambda: database.sql(TICKS, "bad1"), 30, "the one that was mended to fire"
        )
    assert len(await database.events("schedule_undecidable")) == bad


async def test_what_cannot_be_read_or_written_as_it_was_is_left_out_alone(database):
    """Numbers of thousands of digits, or finer than a float; lists in lists in lists."""
    async with firing(database) as goes_on:
        await goes_on(1)
        await database.sql(ODD)
        await goes_on(4)
    told = [event["schedule"] for event in await database.events("schedule_undecidable")]
    assert sorted(told) == ["deep", "digits", "exact", "infinite"]
    assert not await database.events("service_failed")


async def test_jobs_that_the_database_refuses_do_not_keep_the_others_from_firing(
    database, monkeypatch
):
    monkeypatch.setattr(Tuning, "refused_schedule_seconds", 1.0)
    async with firing(database) as goes_on:
        await goes_on(1)
        await database.sql(REFUSED)
        await goes_on(4)
        assert not await database.sql(TICKS, "refused%")
        await database.sql(
            "update leasework.schedule set job = (select job from leasework.schedule "
            "where name = 'fine') where name = 'refused1'"
        )
        await until_async(
            lambda: database.sql(TICKS, "refused1"), 30, "the one that was mended to fire"
        )
    events = await database.events("schedule_undecidable")
    told = {event["schedule"]: event["error"] for event in events}
    assert set(told) == {f"refused{n}" for n in range(1, 10)}
    assert len(events) == 9, "each is told once, however often it is tried"
    assert "smallint" in told["refused3"] and "type real" in told["refused1"]


async def test_what_an_outage_left_is_fired_a_batch_at_a_time_with_the_others(database):
    """All of it at once might take longer than a statement may, again and again; and a schedule
    that is not behind must not wait for those that are."""
    app = database.app()
    await database.sql(FINE)
    await database.sql(BEHIND)

    @app.task(name="fine")
    async def fine() -> None: ...

    async def fired() -> bool:
        return len(await database.sql(TICKS, "behind%")) >= 6 * 400

    async with app.node(execute=False):
        await until_async(fired, 30, "all that was missed")
    statements = (
        "select count(*), bool_or(schedule = 'fine') from leasework.job group by created_at "
        "order by created_at"
    )
    sizes, with_fine = zip(*await database.sql(statements), strict=True)
    # The schedules that are due share a batch: the six, and `fine` if its second has come.
    most = Limits().batch_rows
    assert most // 7 * 6 <= max(sizes) <= most
    assert with_fine[0], "it waited"


async def test_schedules_fire_in_smaller_numbers_if_all_at_once_take_too_long(database):
    await database.sql(SLOW)
    app = database.app(call_timeout=1)

    @app.task(name="fine")
    async def fine() -> None: ...

    await database.sql(FINE)
    await database.sql(MANY)

    async def all_fired() -> bool:
        # each once, or twice if a day begins meanwhile
        return len({name for [name] in await database.sql(FIRED, "many%")}) == 400

    async with app.node():
        await until_async(all_fired, 60, "a tick of each of the 400")


async def test_a_schedule_that_is_behind_fires_fewer_moments_if_all_take_too_long(database):
    """Beside it, one that is on time fires too."""
    await database.sql(SLOW)
    app = database.app(call_timeout=1)

    @app.task(name="fine")
    async def fine() -> None: ...

    await database.sql(FINE)
    await database.sql(BEHIND)
    await database.sql("delete from leasework.schedule where name not in ('fine', 'behind1')")

    async def all_fired() -> bool:
        return len(await database.sql(TICKS, "behind1")) >= 400

    async with app.node() as node:
        await until_async(lambda: database.sql(TICKS, "behind1"), 60, "its first ticks")
        assert len(await database.sql(TICKS, "behind1")) < 400
        assert await database.sql(TICKS, "fine")
        await database.sql("drop function public.slow cascade")
        await until_async(all_fired, 60, "400 ticks")
        periodic: Any = node._duties["periodic"]
        assert periodic.service._batch.now > 100, "more again, as they are quick"
