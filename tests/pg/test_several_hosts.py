"""A DSN with several hosts: the one that can serve is found, whatever the others do."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from leasework import App
from leasework.config import Settings
from leasework.errors import Unavailable
from leasework.pg.connection.session import Session


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


def test_hosts_of_the_environment_or_of_a_service_are_tried_in_turn_as_well(
    migrated: str, silent: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = conninfo_to_dict(migrated)
    host, port = f"127.0.0.1,{own['host']}", f"{silent},{own.get('port') or 5432}"
    rest = {name: value for name, value in own.items() if name not in ("host", "port")}
    services = tmp_path / "services.conf"
    services.write_text(f"[db]\nhost={host}\nport={port}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    for_service = App(make_conninfo(service="db", **rest), call_timeout=4.0)
    assert for_service.sync.jobs() == []
    for_service.sync.close()
    monkeypatch.setenv("PGHOST", host)
    monkeypatch.setenv("PGPORT", port)
    from_environment = App(make_conninfo(**rest), call_timeout=4.0)
    assert from_environment.sync.jobs() == []
    from_environment.sync.close()


@pytest.fixture
async def second_address(migrated: str, silent: int) -> AsyncIterator[None]:
    """The server also listens at 127.0.0.2, on the port of the silent host."""
    own = conninfo_to_dict(migrated)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = f"{own['host']}/.s.PGSQL.{own.get('port') or 5432}"
        from_server, to_server = await asyncio.open_unix_connection(path)

        async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        await asyncio.gather(pass_on(reader, to_server), pass_on(from_server, writer))

    async with await asyncio.start_server(serve, "127.0.0.2", silent):
        yield


async def test_a_name_whose_first_address_is_silent_is_reached_at_its_second(
    migrated: str, silent: int, second_address: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def two_addresses(host: Any, port: Any, *more: Any, **named: Any) -> list[Any]:
        if host != "db.internal":
            return resolve(host, port, *more, **named)
        return [
            entry
            for address in ("127.0.0.1", "127.0.0.2")
            for entry in resolve(address, port, *more, **named)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    dsn = make_conninfo(migrated, host="db.internal", port=str(silent))
    # the guard gives a call two seconds, which is as long as libpq gives one address
    session = await Session.open(Settings(dsn=dsn), "guard", 2.0)
    await session.close()


async def test_a_connection_that_came_too_late_leaves_no_socket_open() -> None:
    """Also if no garbage is collected, so that a busy server does not keep the sessions."""
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            pass
        writer.close()
        gone.set()

    gc.disable()
    try:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            dsn = f"host=127.0.0.1 port={port} dbname=x sslmode=disable gssencmode=disable"
            with pytest.raises(Unavailable):
                await Session.open(Settings(dsn=dsn), "work", 0.5)
            await asyncio.wait_for(gone.wait(), 60)
    finally:
        gc.enable()
