"""A network link to the server that can become silent: it refuses and closes nothing, but delivers
nothing."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_PORT = "5432"  # only part of the socket's name
_FIELDS = b"SWARNING\0C01000\0Mthe end is near\0\0"
_LAST_WORDS = b"N" + (4 + len(_FIELDS)).to_bytes(4, "big") + _FIELDS


_LIMITED = 16384
"""The bytes that one connection sends before it is the others' turn."""


class Relay:
    """``with Relay(dsn) as link``: ``link.dsn`` connects through it.

    ``link.silence()`` holds back all later data, in both directions. ``link.drop_server_side()``
    closes the connections at the server, as its keepalives do after a while, and leaves those of
    the clients open. ``link.hold()`` stops reading what the current clients send. ``link.reset()``
    then sends them a last message and closes their connections. Because of the unread data this is
    a reset, as when a server process is terminated. ``deaf``: deliver no notifications.
    """

    def __init__(
        self, dsn: str, *, deaf: bool = False, bytes_per_second: float | None = None
    ) -> None:
        """``bytes_per_second`` is the limit in each direction, for all connections together."""
        self._deaf = deaf
        self._rate = bytes_per_second
        self._free_at = {"up": 0.0, "down": 0.0}
        target = conninfo_to_dict(dsn)
        self._target = f"{target['host']}/.s.PGSQL.{target.get('port') or _PORT}"
        self._folder = Path(tempfile.mkdtemp(prefix="lh-relay-"))
        self.dsn = make_conninfo(dsn, host=str(self._folder), port=_PORT)
        self._up = threading.Event()
        self._silent = False
        self._server_sides: list[asyncio.StreamWriter] = []
        self._client_sides: list[asyncio.StreamWriter] = []
        self._links: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        assert self._up.wait(60), "the relay did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)
        shutil.rmtree(self._folder, ignore_errors=True)

    def silence(self) -> None:
        self._silent = True

    def drop_server_side(self) -> None:
        for writer in self._server_sides:
            self._loop.call_soon_threadsafe(writer.transport.abort)

    def hold(self) -> None:
        for writer in self._client_sides:
            self._loop.call_soon_threadsafe(writer.transport.pause_reading)

    def reset(self) -> None:
        for writer in self._client_sides:
            self._loop.call_soon_threadsafe(writer.write, _LAST_WORDS)
            self._loop.call_soon_threadsafe(writer.transport.abort)

    # -- in the relay's thread -------------------------------------------------------------------
    async def _main(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_unix_server(
            self._serve, str(self._folder / f".s.PGSQL.{_PORT}")
        )
        self._up.set()
        await self._end.wait()
        server.close()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        this = asyncio.current_task()
        assert this is not None
        self._links.add(this)
        server_reader, server_writer = await asyncio.open_unix_connection(self._target)
        self._server_sides.append(server_writer)
        self._client_sides.append(writer)
        ways = [
            asyncio.create_task(self._pass_on(reader, server_writer, "up")),
            asyncio.create_task(
                self._pass_on_but_notifications(server_reader, writer)
                if self._deaf
                else self._pass_on(server_reader, writer, "down")
            ),
            asyncio.create_task(self._end.wait()),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        if self._silent:
            await self._end.wait()  # neither side learns that the other has gone
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, server_writer):
            end.transport.abort()
        self._links.discard(this)

    async def _take_turn(self, way: str, size: int) -> None:
        """Wait until the link has delivered all earlier data, and this."""
        if self._rate:
            begins = max(self._loop.time(), self._free_at[way])
            self._free_at[way] = begins + size / self._rate
            await asyncio.sleep(self._free_at[way] - self._loop.time())

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_LIMITED if self._rate else 65536):
                await self._take_turn(way, len(data))
                if self._silent:  # data that was held back is never delivered, not even at the end
                    await self._end.wait()
                    return
                writer.write(data)
                await writer.drain()

    async def _pass_on_but_notifications(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Split what the server sends into messages: a kind, a length that includes itself, and a
        body."""
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:]) - 4)
                if head[:1] != b"A":
                    writer.write(head + body)
                    await writer.drain()
