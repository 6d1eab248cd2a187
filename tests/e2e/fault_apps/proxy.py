"""A link to the server that loses answers: the statement is done, and nobody is told.

It reads the protocol just far enough to know which statement a request executes and where its
answer ends; then it cuts the connection on both sides instead of passing the answer on.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import struct
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from psycopg.conninfo import conninfo_to_dict, make_conninfo

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
_PORT = "5432"  # only a part of the socket's name


class Loss:
    """Which answers are lost: those to statements that contain ``text``, ``times`` times, each
    with a ``chance``; with ``rows``, only answers that bring some. Never three in a row."""

    def __init__(self, text: str, times: int, chance: float = 1.0, rows: bool = True) -> None:
        self.text = text
        self.times = times
        self.chance = chance
        self.rows = rows
        self.lost = 0
        self._in_a_row = 0
        self._rng = random.Random(7)

    def hits(self, has_rows: bool) -> bool:
        """Is this answer to be lost? Asked once for each answer."""
        if self.lost >= self.times or (self.rows and not has_rows):
            return False
        hit = self._rng.random() < self.chance and (self.chance == 1.0 or self._in_a_row < 2)
        self._in_a_row = self._in_a_row + 1 if hit else 0
        self.lost += hit
        return hit


class Proxy:
    """``Proxy(dsn)`` listens on a socket of its own; ``.dsn`` goes through it to ``dsn``."""

    def __init__(self, dsn: str) -> None:
        target = conninfo_to_dict(dsn)
        self._target = f"{target['host']}/.s.PGSQL.{target.get('port') or _PORT}"
        self.folder = Path(tempfile.mkdtemp(prefix="lh-proxy-"))
        self.dsn = make_conninfo(dsn, host=str(self.folder), port=_PORT)
        self.losses: list[Loss] = []
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def lose(self, text: str, times: int, chance: float = 1.0, *, rows: bool = True) -> Loss:
        loss = Loss(text, times, chance, rows)
        self.losses.append(loss)
        return loss

    def __enter__(self) -> Proxy:
        self._thread.start()
        assert self._up.wait(10), "the proxy did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- in the proxy's thread -------------------------------------------------------------------
    def _run(self) -> None:
        asyncio.run(self._main())  # cancels what is left of the links

    async def _main(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        path = str(self.folder / f".s.PGSQL.{_PORT}")
        server = await asyncio.start_unix_server(self._serve, path)
        self._up.set()
        await self._end.wait()
        server.close()

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            server_reader, server_writer = await asyncio.open_unix_connection(self._target)
            link = _Link(self.losses, reader, writer, server_reader, server_writer)
            try:
                await link.run()
            finally:
                server_writer.close()
        writer.close()


class _Link:
    """One connection, both directions."""

    def __init__(
        self,
        losses: list[Loss],
        reader: Reader,
        writer: Writer,
        server_reader: Reader,
        server_writer: Writer,
    ) -> None:
        self._losses = losses
        self._reader, self._writer = reader, writer
        self._server_reader, self._server_writer = server_reader, server_writer
        self._statements: dict[bytes, Loss | None] = {}
        self._at_stake: Loss | None = None

    async def run(self) -> None:
        head = await self._reader.readexactly(4)
        (length,) = struct.unpack("!I", head)
        self._server_writer.write(head + await self._reader.readexactly(length - 4))
        ways = [asyncio.create_task(way) for way in (self._requests(), self._answers())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(self) -> None:
        while True:
            kind, message = await _message(self._reader)
            body = message[5:]
            if kind == b"P":
                name, _, text = body.partition(b"\0")
                self._statements[name] = self._loss_of(text)
            elif kind == b"B":
                name = body.split(b"\0")[1]
                self._at_stake = self._statements.get(name) or self._at_stake
            elif kind == b"Q":
                self._at_stake = self._loss_of(body)
            self._server_writer.write(message)
            await self._server_writer.drain()

    def _loss_of(self, text: bytes) -> Loss | None:
        found = [loss for loss in self._losses if loss.text.encode() in text]
        return found[0] if found else None

    async def _answers(self) -> None:
        kept: list[bytes] = []
        has_rows = False
        while True:
            kind, message = await _message(self._server_reader)
            has_rows = has_rows or kind == b"D"
            kept.append(message)
            if kind == b"Z" and self._at_stake and self._at_stake.hits(has_rows):
                return  # it is done, and nobody is told
            if kind == b"Z":
                self._at_stake, has_rows = None, False
            if kind in (b"Z", b"G", b"R", b"A") or not self._at_stake:
                self._writer.write(b"".join(kept))
                kept.clear()
                await self._writer.drain()


async def _message(reader: Reader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!I", head[1:])
    return head[:1], head + await reader.readexactly(length - 4)
