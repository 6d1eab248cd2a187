"""A connection whose socket the event loop watches as long as it lives.

psycopg adds the socket and a timer to the loop for each wait and takes both away again: about a
third of what a short statement costs its client. Here the socket stays, and what arrives is read
at once, in the loop's own call.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.pq import TransactionStatus
from psycopg.waiting import READY_NONE, READY_R, WAIT_R, Wait

Row = tuple[Any, ...]

_CANCEL_SECONDS = 5.0
"""For a statement whose caller was cancelled, to end in the server."""


class Link(psycopg.AsyncConnection[Row]):
    """Of one event loop. Whatever it cannot do, psycopg's own way does."""

    _loop: asyncio.AbstractEventLoop | None = None
    """That watches the socket; None: nobody does."""
    _descriptor = -1
    _steps: PQGen[Any] | None = None
    """The statement under way: it is told when there is something to read."""
    _ended: asyncio.Future[Any] | None = None
    """As ``_read`` gives it."""

    async def wait(self, gen: PQGen[RV], *limits: Any, **named: Any) -> RV:
        """Carry out a statement. Raises psycopg.Error."""
        if limits or named:  # by the clock
            return await self._slowly(gen, *limits, **named)
        try:
            wanted = next(gen)
        except StopIteration as end:
            await asyncio.sleep(0)  # a COPY never waits, and the loop has its turn
            return cast(RV, end.value)
        except BaseException:
            self._leave()
            raise
        if wanted == WAIT_R:
            done, what = await self._read(gen)
            if done:
                return cast(RV, what)
            wanted = what
        # to send what the socket does not take at once
        return await self._slowly(_rest(gen, wanted))

    async def readable(self) -> None:
        """Until there is something to read, or the other end is gone."""
        steps = _until_readable()
        next(steps)
        await self._read(steps)

    async def close(self) -> None:
        self._leave()
        await super().close()

    async def _read(self, gen: PQGen[RV]) -> tuple[bool, Any]:
        """Whether it came to its end, and what came of it; or what it waits for now."""
        loop = self._loop or self._watch()
        self._steps, self._ended = gen, loop.create_future()
        try:
            done, what = await self._ended
            return done, what
        except asyncio.CancelledError:
            self._ended = None
            await self._stop(gen)
            raise
        finally:
            self._steps = self._ended = None

    async def _stop(self, gen: PQGen[Any]) -> None:
        """As psycopg does it: cancelled in the server, and read to its end, so that the
        connection can be used again; closed if that does not work."""
        if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
            return
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.cancel_safe(timeout=_CANCEL_SECONDS)
                await self._slowly(_rest(gen, WAIT_R))
        except psycopg.errors.QueryCanceled:
            pass
        except BaseException as error:
            self._leave()
            self.pgconn.finish()
            if not isinstance(error, Exception):
                raise

    async def _slowly(self, gen: PQGen[RV], *limits: Any, **named: Any) -> RV:
        """psycopg watches the socket itself."""
        self._leave()
        return await super().wait(gen, *limits, **named)

    def _watch(self) -> asyncio.AbstractEventLoop:
        self._loop, self._descriptor = asyncio.get_running_loop(), self.pgconn.socket
        self._loop.add_reader(self._descriptor, self._on_readable)
        return self._loop

    def _leave(self) -> None:
        """Before anybody else watches the socket, and before its number is another's."""
        if self._loop is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._descriptor)
            self._loop = None

    def _on_readable(self) -> None:
        ended = self._ended
        if self._steps is None or ended is None or ended.done():
            self._leave()  # nobody reads it now, and the loop would call again at once
            return
        try:
            wanted = self._steps.send(READY_R)
        except StopIteration as end:
            ended.set_result((True, end.value))
        except BaseException as error:
            self._leave()  # libpq may have closed the socket
            ended.set_exception(error)
        else:
            if wanted != WAIT_R:
                ended.set_result((False, wanted))


def _until_readable() -> PQGen[None]:
    yield WAIT_R


def _rest(gen: PQGen[RV], wanted: Wait) -> PQGen[RV]:
    """A statement that has begun, from where it waits."""
    try:
        while True:
            ready = yield wanted
            wanted = gen.send(ready or READY_NONE)
    except StopIteration as end:
        return cast(RV, end.value)
