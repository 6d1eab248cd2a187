"""A link to the database that fails as networks do, for one process's connections at a time.

It listens on its own unix socket. It can delay, block (a hole: the data arrives later, or
everything is reset) or cut either direction. It can lose an answer after the server has executed
the statement, and it can close one end without telling the other.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from leasework.env import Rng, seeded
from leasework.errors import ConfigError
from leasework_lab.chaos.wire import (
    Reader,
    Requests,
    Writer,
    ends_transaction,
    read_message,
    read_startup,
)

_PORT = "5432"  # only part of the socket's name
_GOES_ON = (b"P", b"B", b"D", b"E", b"C")
"""Requests that are followed by more in the same packet."""
_FLUSHED = (b"Z", b"G", b"H", b"R", b"A")
"""Answers that a client waits for: ready, COPY in and out, authentication, a notification."""
_TLS = ("require", "verify-ca", "verify-full")
_PLAIN = {"sslmode": "disable", "gssencmode": "disable"}
ENDS = (OSError, asyncio.IncompleteReadError)


def _refuse_tls(target: Mapping[str, Any]) -> None:
    """Raises ConfigError for TLS: the link reads what passes, so it must not be encrypted."""
    mode = str(target.get("sslmode") or os.environ.get("PGSSLMODE", ""))
    if mode in _TLS or target.get("channel_binding") == "require":
        raise ConfigError(
            "the campaign's links to the database do not support TLS",
            got=f"sslmode={mode or 'prefer'} channel_binding={target.get('channel_binding')}",
            do="Use a staging database that is reached without TLS, for example through a tunnel, "
            "and set sslmode=disable",
        )


class Loss:
    """Selects the answers to lose: those to statements with ``text``, ``times`` times, each with a
    ``chance``; with ``rows``, only answers that have rows. Never three in a row."""

    def __init__(
        self, text: str, times: int, chance: float = 1.0, rows: bool = True, rng: Rng | None = None
    ) -> None:
        self.text = text
        self.times = times
        self.chance = chance
        self.rows = rows
        self.lost = 0
        self._in_a_row = 0
        self._rng = rng or seeded(7)

    def concerns(self, text: bytes) -> bool:
        return self.text.encode() in text

    def hits(self, has_rows: bool) -> bool:
        """Should this answer be lost? Called once for each answer that it concerns."""
        if self.lost >= self.times or (self.rows and not has_rows):
            return False
        hit = self._rng.random() < self.chance and (self.chance == 1.0 or self._in_a_row < 2)
        self._in_a_row = self._in_a_row + 1 if hit else 0
        self.lost += hit
        return hit


class WriteLoss(Loss):
    """Loses answers to writes at the end of their transaction, that is, at COMMIT."""

    def __init__(self, chance: float, rng: Rng) -> None:
        super().__init__("", 1_000_000, chance, rows=False, rng=rng)


class Gate:
    """One direction of a link: open, or temporarily closed."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        await self._open.wait()


class FaultProxy:
    """``async with FaultProxy(dsn) as link``: ``link.dsn`` goes through it to ``dsn``.

    Belongs to one event loop. ``delay`` (seconds) and the gates ``requests`` and ``answers`` affect
    every connection, ``losses`` every answer. ``trap`` is called once, when the next request that
    writes has been passed on but not answered.
    """

    def __init__(self, dsn: str) -> None:
        self._target = conninfo_to_dict(dsn)
        _refuse_tls(self._target)
        self.folder = Path(tempfile.mkdtemp(prefix="lh-link-"))
        # given an address, libpq would connect there, whatever the host
        kept = {name: value for name, value in self._target.items() if name != "hostaddr"}
        way = {"host": str(self.folder), "port": _PORT}
        self.dsn = make_conninfo("", **{**kept, **way, **_PLAIN})
        self.delay = 0.0
        self.requests, self.answers = Gate(), Gate()
        self.losses: list[Loss] = []
        self.trap: Callable[[], None] | None = None
        self.trap_text = b""
        """Only a request that contains this text springs the trap."""
        self.whole = asyncio.Event()
        """Set by :meth:`heal`; half-closed connections are then closed completely."""
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> FaultProxy:
        path = str(self.folder / f".s.PGSQL.{_PORT}")
        self._server = await asyncio.start_unix_server(self._serve, path)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._server:
            self._server.close()
        self.heal()
        self.reset()
        await asyncio.sleep(0)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- faults ----------------------------------------------------------------------------------
    def hole(self, requests: bool, answers: bool) -> None:
        """Block these directions, also for new connections."""
        if requests:
            self.requests.close()
        if answers:
            self.answers.close()

    def heal(self) -> None:
        """End all faults. Blocked data arrives, even from clients that have gone since."""
        self.delay = 0.0
        self.losses.clear()
        self.trap = None
        self.requests.open()
        self.answers.open()
        self.whole.set()

    def reset(self) -> int:
        """Break every connection on both sides without notice. Returns how many."""
        links = list(self._links)
        for link in links:
            link.abort()
        return len(links)

    def forget_server(self) -> int:
        """Close only the server's side: the client learns of it at its next request."""
        links = self._halve()
        for link in links:
            link.abort_server()
        return len(links)

    def forget_client(self) -> int:
        """Close only the client's side: the server keeps the session and its locks."""
        links = self._halve()
        for link in links:
            link.abort_client()
        return len(links)

    def _halve(self) -> list[_Link]:
        self.whole.clear()
        links = list(self._links)
        for link in links:
            link.half = True
        return links

    # -- connections -----------------------------------------------------------------------------
    async def _serve(self, reader: Reader, writer: Writer) -> None:
        link = None
        try:
            await self.requests.passed()
            server_reader, server_writer = await self._connect()
            link = _Link(self, reader, writer, server_reader, server_writer)
            self._links.add(link)
            await link.run()
        except ENDS:
            pass
        finally:
            if link:
                self._links.discard(link)
                link.abort()
            _abort(writer)

    async def _connect(self) -> tuple[Reader, Writer]:
        host = self._first("hostaddr") or self._first("host") or "localhost"
        port = self._first("port") or _PORT
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, int(port))

    def _first(self, name: str) -> str:
        """The first of several hosts."""
        return str(self._target.get(name) or "").split(",")[0]

    def sprung(self, text: bytes) -> None:
        """Called when a request that writes has been passed on."""
        if self.trap and self.trap_text in text:
            trap, self.trap = self.trap, None
            trap()


class _Link:
    """One connection in both directions."""

    def __init__(
        self, proxy: FaultProxy, reader: Reader, writer: Writer, from_: Reader, to: Writer
    ) -> None:
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._server_reader, self._server_writer = from_, to
        self._requests = Requests()
        self._at_stake: list[Loss] = []
        self.half = False
        """One end was closed, and the other must not notice."""

    async def run(self) -> None:
        await self._send(self._server_writer, await read_startup(self._reader))
        up = asyncio.create_task(self._pass_requests())
        down = asyncio.create_task(self._pass_answers())
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if self.half:
                await self._proxy.whole.wait()
        finally:
            for way in (up, down):
                way.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _pass_requests(self) -> None:
        kept: list[bytes] = []
        while True:
            kind, message = await read_message(self._reader)
            self._requests.saw(kind, message)
            if kind in (b"B", b"Q"):
                text = self._requests.text
                self._at_stake = [x for x in self._proxy.losses if x.concerns(text)]
            kept.append(message)
            if kind in _GOES_ON:
                continue
            # what was sent before its client left still arrives when the hole ends
            await self._hold(self._proxy.requests)
            await self._send(self._server_writer, b"".join(kept))
            kept.clear()
            # a COMMIT is on its way, or a statement that is its own transaction
            if kind in (b"S", b"Q") and self._proxy.trap and self._requests.writes:
                self._proxy.sprung(self._requests.text)

    async def _pass_answers(self) -> None:
        kept: list[bytes] = []
        has_rows = False
        while True:
            kind, message = await read_message(self._server_reader)
            has_rows = has_rows or kind == b"D"
            kept.append(message)
            if kind == b"Z":
                if self._is_lost(message, has_rows):
                    return  # committed, but nobody is told
                self._requests.answered()
                self._at_stake, has_rows = [], False
            if kind in _FLUSHED:
                await self._hold(self._proxy.answers)
                await self._send(self._writer, b"".join(kept))
                kept.clear()

    def _is_lost(self, ready: bytes, has_rows: bool) -> bool:
        for loss in self._at_stake:
            committed = ends_transaction(ready) and self._requests.writes
            if (committed or not isinstance(loss, WriteLoss)) and loss.hits(has_rows):
                return True
        return False

    async def _hold(self, gate: Gate) -> None:
        if self._proxy.delay:
            await asyncio.sleep(self._proxy.delay)
        await gate.passed()

    async def _send(self, writer: Writer, message: bytes) -> None:
        writer.write(message)
        await writer.drain()

    def abort(self) -> None:
        self.abort_client()
        self.abort_server()

    def abort_client(self) -> None:
        _abort(self._writer)

    def abort_server(self) -> None:
        _abort(self._server_writer)


def _abort(writer: Writer) -> None:
    with suppress(OSError, RuntimeError):
        raw = writer.get_extra_info("socket")
        if raw is not None and raw.family != socket.AF_UNIX:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
