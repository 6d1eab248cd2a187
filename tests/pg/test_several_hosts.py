"""A DSN with several hosts: the one that can serve is found, whatever the others do."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from leasework import App
from leasework.errors import Unavailable
from leasework.pg.connection.connect import one_host_each


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a host that takes calls and never answers: frozen, or cut off."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        yield listening.getsockname()[1]


def several(dsn: str, *first: int) -> str:
    own = conninfo_to_dict(dsn)
    hosts = ["127.0.0.1"] * len(first) + [str(own["host"])]
    ports = [str(port) for port in first] + [str(own.get("port") or 5432)]
    return make_conninfo(dsn, host=",".join(hosts), port=",".join(ports))


async def test_a_host_that_never_answers_does_not_hide_the_next(migrated: str, silent: int) -> None:
    app = App(several(migrated, silent, 1, silent), call_timeout=8.0)
    assert await app.jobs() == [], "the silent hosts did not use up the time"
    await app.close()


async def test_when_no_host_answers_it_is_said_in_time(silent: int) -> None:
    app = App(f"host=127.0.0.1,127.0.0.1 port={silent},{silent}", call_timeout=1.0)
    with pytest.raises(Unavailable, match="did not answer in time"):
        await app.jobs()


async def test_when_all_hosts_refuse_their_reason_is_given() -> None:
    app = App("host=127.0.0.1,127.0.0.1 port=1,1")
    with pytest.raises(Unavailable, match="refused"):
        await app.jobs()


def test_options_for_all_hosts_hold_for_each() -> None:
    assert one_host_each({"host": "a,b", "port": "5", "dbname": "d"}) == [
        {"host": "a", "port": "5", "dbname": "d"},
        {"host": "b", "port": "5", "dbname": "d"},
    ]
    assert one_host_each({"hostaddr": "1,2", "port": "5,6"})[1] == {"hostaddr": "2", "port": "6"}
    assert one_host_each({"dbname": "d"}) == [{"dbname": "d"}]
