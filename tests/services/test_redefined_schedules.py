"""A schedule whose definition changes while moments of it are due and undecided."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from leasework.app import App
from leasework.duties.syncer import Planned
from leasework.model.missed import Missed
from leasework.model.schedule import every
from tests.services.several import Database, several_apps
from tests.support.moments import HALF_A_WEEK_AWAY, WEEK_SECONDS
from tests.support.wait import until_async

ENTRIES = "select fire_at, until, state from leasework.tick order by fire_at"
FORMER = "select former from leasework.schedule where name = 't'"
SHUT_DOWN_SECONDS = 10


@pytest.fixture
async def database(dsn: str, migrated: str) -> AsyncIterator[Database]:
    async with several_apps(dsn, migrated) as database:
        yield database


async def defined_ten_seconds_ago(app: App) -> datetime:
    """By a process that has ended since: one moment each second. When."""
    store = await app.store()
    moment = await store.database_now(None) - timedelta(seconds=SHUT_DOWN_SECONDS)
    job = app.registry.get("t").job()
    before = Planned("t", every(seconds=1), job, Missed.ALL, 0.5)
    await store.sync_schedules("default", "r1", [before.definition(moment)], moment)
    return moment


@pytest.mark.parametrize("missed", ["all", "latest", "skip"])
async def test_the_moments_missed_before_are_decided_and_then_the_new_ones(
    database: Database, missed: str
):
    app = database.app(release="r2")

    @app.every(
        seconds=WEEK_SECONDS, anchor=HALF_A_WEEK_AWAY, name="t", missed=missed, grace_seconds=0.5
    )
    @app.task(name="t")
    async def work() -> None: ...

    began = await defined_ten_seconds_ago(app)
    async with app.node():

        async def over() -> bool:
            return bool(await database.sql(ENTRIES)) and await database.sql(FORMER) == [(None,)]

        await until_async(over, 30)
    entries = await database.sql(ENTRIES)
    moments = [at for at, _, _ in entries]
    first = datetime.fromtimestamp(int(began.timestamp()) + 1, UTC)
    expected = [first + timedelta(seconds=n) for n in range(len(moments))]
    assert moments == expected and len(moments) >= SHUT_DOWN_SECONDS - 1, "each second, no more"
    states = [state for _, _, state in entries]
    late = states[:-1]  # the last one may have been on time
    wanted = {"all": "fired", "latest": "missed", "skip": "missed"}[missed]
    assert set(late) == {wanted}
    if missed == "latest":
        assert states[-1] == "fired"
    [(next_at,)] = await database.sql("select next_at from leasework.schedule")
    assert next_at == HALF_A_WEEK_AWAY


async def test_a_former_definition_that_cannot_be_read_does_not_silence_the_new_one(
    database: Database,
):
    app = database.app(release="r2")

    @app.every(seconds=1, name="t")
    @app.task(name="t")
    async def work() -> None: ...

    await defined_ten_seconds_ago(app)
    await database.sql('update leasework.schedule set spec = \'{"kind": "lunar"}\'')
    async with app.node():

        async def fires() -> bool:
            fired = await database.sql("select 1 from leasework.tick where state = 'fired'")
            return len(fired) >= 3 and await database.sql(FORMER) == [(None,)]

        await until_async(fires, 30)

        async def told() -> bool:
            errors = [event["error"] for event in await database.events("schedule_undecidable")]
            return any("as it was before" in error and "lunar" in error for error in errors)

        await until_async(told, 30)
