"""``leasework.testing.clear``, and which databases it and ``drain`` refuse."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from leasework import App
from leasework.errors import ConfigError, Conflict
from leasework.pg.schema.scratch import EMPTIED
from leasework.testing import clear, drain
from leasework.testing.databases import connected_to


async def test_a_cleared_database_is_as_new_except_for_its_tokens(migrated: str, sql: Any) -> None:
    app = App(migrated)

    @app.task(name="t")
    async def work() -> None: ...

    tokens = []
    for _ in range(2):
        await app.schedules.put("hourly", "t", every=3600)
        await app.schedules.run_now("hourly")
        [record] = await drain(app)
        assert record.state == "completed"
        async with app.lock("a") as lock:
            tokens.append(lock.token)
        await clear(app)
        assert await app.jobs() == []
        rows = "select count(*) from leasework.tick union all select count(*) from leasework.event"
        assert await sql(rows) == [(0,), (0,)]
    assert tokens == sorted(set(tokens)), "tokens grow"
    await app.close()


def test_a_factory_that_configures_the_app_keeps_the_tests_database(migrated: str) -> None:
    app = App("postgresql://production/shop", name="shop")
    with connected_to(app, migrated):
        app.configure(dsn="postgresql://production/shop", name="web")
        assert (app.settings.dsn, app.settings.name) == (migrated, "web")
    assert (app.settings.dsn, app.settings.name) == ("postgresql://production/shop", "shop")


@pytest.mark.parametrize("act", [clear, drain])
@pytest.mark.parametrize("name", ["contest", "latest_shop"])
async def test_a_name_with_the_letters_of_test_is_no_test_database(name: str, act: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{act.__name__} .* the word 'test'.*{name}"):
        await act(App(f"postgresql://nowhere.invalid/{name}"))


async def test_only_a_test_database_is_cleared_and_only_the_tables_of_leasework(
    migrated: str, sql: Any, postgres: Any
) -> None:
    with pytest.raises(ConfigError, match=r"contains the word 'test'.*postgres"):
        await clear(App(postgres.dsn))
    await sql("create table leasework.auth_user as select 1 as id")
    app = App(migrated)
    await clear(app)
    assert await sql("select id from leasework.auth_user") == [(1,)]
    tables = """
        select relname from pg_class where relnamespace = 'leasework'::regnamespace
        and relkind in ('r', 'p') and not relispartition and relname <> 'auth_user'"""
    kept = {
        "migration",
        "incarnation",
        "leader",
        "fence",
        "term",
        "release",
        "lock_name",
        "shared_begin",
    }
    assert {name for (name,) in await sql(tables)} == kept | set(EMPTIED)


async def test_a_transaction_of_the_test_itself_does_not_hang_the_clearing(
    migrated: str, sql: Any
) -> None:
    app = App(migrated)

    @app.task(name="t")
    async def work() -> None: ...

    async with await psycopg.AsyncConnection.connect(migrated) as connection:
        await work.using(on=connection).enqueue()
        with pytest.raises(Conflict):
            await clear(app)
    assert len(await app.jobs()) == 1
    await app.close()


async def test_a_database_where_a_node_is_alive_is_not_cleared(migrated: str) -> None:
    app, other = App(migrated), App(migrated)

    @app.task(name="t")
    async def work() -> None: ...

    job = await work.using(run_in=3600).enqueue()
    async with app.node() as node:
        with pytest.raises(ConfigError, match=r"in use by a node.*Got"):
            await clear(other)
        assert node
    assert (await app.get(job.id)).state == "scheduled"
    await app.close()
