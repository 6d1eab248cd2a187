"""The dashboard reads its long lists from a hot standby, and all else from the primary."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from leasework_lab.server import unprivileged

from leasework import App
from leasework.errors import ConfigError, ReadOnlyServer
from leasework.pg.schema import migrate
from leasework.web import dashboard
from tests.support.wait import until

ENQUEUE = "select leasework.enqueue(%s)"


class Pair:
    """A primary with leasework's schema, and its standby."""

    def __init__(self, primary: Any, standby: Any) -> None:
        self.primary, self.standby = primary, standby

    def sql(self, query: str, *params: Any, of: Any = None) -> list[tuple[Any, ...]]:
        with psycopg.connect((of or self.primary).dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), params or None)
            return cursor.fetchall() if cursor.description else []

    def enqueue(self, queue: str) -> None:
        self.sql(ENQUEUE, json.dumps({"task": "t", "queue": queue}))

    def caught_up(self) -> None:
        [(here,)] = self.sql("select pg_current_wal_lsn()::text")
        behind = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
        until(lambda: self.sql(behind, here, of=self.standby) == [(True,)], 60, "the standby")


@pytest.fixture
def pair(own_postgres: Callable[..., Any]) -> Iterator[Pair]:
    primary, standby = own_postgres(), own_postgres()
    standby._control("stop", "-m", "immediate")
    data: Path = standby.data_dir / "pgdata"
    shutil.rmtree(data)
    subprocess.run(
        [standby._programs / "pg_basebackup", "-R", "-c", "fast", "-D", data, "-d", primary.dsn],
        check=True, cwd="/", capture_output=True, **unprivileged(),
    )  # fmt: skip
    with (data / "postgresql.conf").open("a") as file:
        file.write(f"unix_socket_directories = '{standby.data_dir}'\n")
    standby._control("start")
    yield Pair(primary, standby)


async def page(app: App, path: str, status: int = 200) -> str:
    transport = httpx.ASGITransport(dashboard(app, unprotected=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get(path)
        assert answer.status_code == status, answer.text
        return answer.text


async def test_lists_come_from_the_replica_and_all_else_from_the_primary(pair: Pair) -> None:
    app = App(dsn=pair.primary.dsn, replica=pair.standby.dsn)
    await migrate.apply(app.settings)
    pair.enqueue("mail")
    pair.caught_up()
    pair.sql("select pg_wal_replay_pause()", of=pair.standby)
    pair.enqueue("news")
    listed = await page(app, "/jobs?q=state:available")
    assert ">mail<" in listed and ">news<" not in listed and "Lists from a replica" in listed
    assert "news" in await page(app, "/queues")
    pair.sql("select pg_wal_replay_resume()", of=pair.standby)
    pair.caught_up()
    assert ">news<" in await page(app, "/jobs?q=state:available")
    for path in ("/failures", "/events", "/history?queue=mail", "/jobs?q=task:t"):
        await page(app, path)
    said = "select count(*) from pg_stat_activity where application_name = 'leasework replica'"
    assert pair.sql(said, of=pair.standby) > [(0,)]
    await app.close()


async def test_a_replica_that_is_away_stops_only_its_lists(pair: Pair) -> None:
    app = App(dsn=pair.primary.dsn, replica=pair.standby.dsn)
    await migrate.apply(app.settings)
    pair.enqueue("mail")
    pair.standby._control("stop", "-m", "immediate")
    assert "mail" in await page(app, "/queues")
    told = await page(app, "/jobs", 503)
    assert "did not answer" in told and str(pair.standby.data_dir) in told
    await app.close()


async def test_no_node_works_on_a_replica(pair: Pair) -> None:
    app = App(dsn=pair.standby.dsn)
    with pytest.raises(ReadOnlyServer, match="the server is a replica"):
        async with app.node():
            pass
    await app.close()


def test_a_replica_is_text() -> None:
    with pytest.raises(ConfigError, match="replica must be text without NUL"):
        App(dsn="dbname=shop", replica="dbname=\0")
