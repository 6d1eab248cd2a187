"""A connection whose socket the event loop watches as long as it lives.

psycopg adds the socket and a timer to the loop for each wait and takes both away again: about a
third of what a short statement costs its client. Here the socket stays, and what arrives is read
at once, in the loop's own call.

That call may never come: for a socket with an error pending uvloop calls once and never again,
even if only the server's last words were read. So nothing depends on the loop's call alone: while
a statement is under way pg/timer.py calls ``look`` now and then, and ``give_up`` at the end of its
time.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.waiting import READY_NONE, READY_R, READY_W, WAIT_R, WAIT_W, Ready, Wait

from leasehold.pg.connection.exchange import Exchange, Row
from leasehold.pg.sql import Query

_CANCEL_SECONDS = 5.0
"""For a statement whose caller was cancelled, to end in the server."""

Ended = Callable[[Any, BaseException | None], None]
"""Told what came of a statement: its answer, or an error."""
Ear = Callable[[str | None], None]
"""Told the text of each notification, and None once, when the connection has ended."""


class Link(psycopg.AsyncConnection[Row]):
    """Of one event loop. Whatever it cannot do, psycopg's own way does."""

    _loop: asyncio.AbstractEventLoop | None = None
    """That watches the socket; None: nobody does."""
    _descriptor = -1
    _writes = False
    """The loop says when there is room to write, too."""
    _steps: PQGen[Any] | None = None
    """The statement under way: it is told when there is something to read."""
    _ended: Ended | None = None
    """Of the statement under way."""
    _exchange: Exchange | None = None
    _given_up = False
    _ear: Ear | None = None

    @property
    def usable(self) -> bool:
        """It is open and between two transactions."""
        status = self.pgconn.transaction_status
        return not self._given_up and not self.closed and status == TransactionStatus.IDLE

    def send(self, query: Query, params: Mapping[str, Any], ended: Ended) -> None:
        """Carry out a statement as a transaction of its own. ``ended`` is called once, with its
        Answer or a psycopg.Error, whatever becomes of who sent it.

        Raises psycopg.Error when it cannot be sent.
        """
        self._refuse_to_share()
        if self.lock.locked():
            raise psycopg.OperationalError("another statement is under way")
        exchange = self._exchange
        if exchange is None:
            exchange = self._exchange = Exchange(self)
        steps = exchange.steps(query, params)
        try:
            wanted = next(steps)
        except BaseException:
            self._keep()
            raise
        self._begin(steps, wanted, ended)

    async def wait(self, gen: PQGen[RV], *limits: Any, **named: Any) -> RV:
        """Carry out a statement of psycopg's. Raises psycopg.Error."""
        self._refuse_to_share()
        if limits or named:  # by the clock
            self._leave()
            try:
                return await super().wait(gen, *limits, **named)
            finally:
                self._keep()
        try:
            wanted = next(gen)
        except StopIteration as end:
            await asyncio.sleep(0)  # a COPY never waits, and the loop has its turn
            return cast(RV, end.value)
        except BaseException:
            self._keep()
            raise
        future: asyncio.Future[RV] = asyncio.get_running_loop().create_future()
        self._begin(gen, wanted, partial(settle, future))
        try:
            return await future
        except asyncio.CancelledError:
            await self._stop(gen)
            raise

    def hear(self, ear: Ear) -> None:
        """From now on call ``ear``, which must not raise, in the loop's own call."""
        if self._ear is None:  # for those that one of psycopg's statements reads
            self.add_notify_handler(lambda note: self._ear and self._ear(note.payload))
        self._ear = ear

    def look(self) -> None:
        """Read what has come for the statement under way, whether or not the loop has said so."""
        if self._steps is not None:
            self._go_on(READY_R)

    def give_up(self, why: str) -> None:
        """End the connection at its socket. Whoever waits for a statement is told now; nobody can
        use the connection any more. It is still to be closed."""
        with suppress(psycopg.Error, OSError):
            # without a descriptor of its own: a process that has none left needs its limits as well
            twin = socket.socket(fileno=self.fileno())
            try:
                twin.shutdown(socket.SHUT_RDWR)
            finally:
                twin.detach()
        self._end(why)

    async def close(self) -> None:
        self._end("the connection was closed")
        await super().close()

    # -- the statement under way -----------------------------------------------------------------
    def _begin(self, steps: PQGen[Any], wanted: Wait, ended: Ended) -> None:
        self._watch()
        self._steps, self._ended = steps, ended
        if wanted != WAIT_R:
            self._write(bool(wanted & WAIT_W))

    def _go_on(self, ready: Ready) -> None:
        steps, ended = self._steps, self._ended
        if steps is None or ended is None:
            self._take_in()
            return
        try:
            wanted = steps.send(ready)
        except StopIteration as end:
            self._steps = self._ended = None
            self._write(False)
            ended(end.value, None)
        except BaseException as wrong:
            self._steps = self._ended = None
            self._keep()
            ended(None, wrong)
        else:
            self._write(bool(wanted & WAIT_W))
        self._pass_on()

    def _pass_on(self) -> None:
        """The notifications that were read: alone, or with a statement's answer."""
        while self._ear and (note := self.pgconn.notifies()):
            self._ear(note.extra.decode(errors="replace"))

    def _take_in(self) -> None:
        """What comes between two statements: a notice, a setting's new value, or the end.

        In a transaction it is left to the next statement: psycopg ends the block of a transaction
        on a closed connection without an error, as if it had been committed.
        """
        if self.pgconn.transaction_status != TransactionStatus.IDLE:
            self._leave()
            return
        with suppress(psycopg.OperationalError):  # the end: libpq closes the socket
            self.pgconn.consume_input()
            self.pgconn.is_busy()
        self._pass_on()
        self._keep()

    def _end(self, why: str) -> None:
        ended = self._ended
        self._given_up, self._steps, self._ended = True, None, None
        self._leave()
        if ended is not None:
            ended(None, psycopg.OperationalError(why))
        self._say_gone()

    def _say_gone(self) -> None:
        ear, self._ear = self._ear, None
        if ear is not None:
            ear(None)

    def _refuse_to_share(self) -> None:
        if self._steps is not None:
            raise psycopg.OperationalError("another statement is under way")
        if self._given_up:
            raise psycopg.OperationalError("the connection was given up")

    async def _stop(self, gen: PQGen[Any]) -> None:
        """As psycopg does it: cancelled in the server, and read to its end, so that the
        connection can be used again; closed if that does not work."""
        self._steps = self._ended = None
        if self._given_up or self.pgconn.transaction_status != TransactionStatus.ACTIVE:
            return
        self._leave()
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.cancel_safe(timeout=_CANCEL_SECONDS)
                await super().wait(_rest(gen, WAIT_R))
        except psycopg.errors.QueryCanceled:
            pass
        except BaseException as error:
            self.pgconn.finish()
            if not isinstance(error, Exception):
                raise
        finally:
            self._keep()

    # -- the loop's watch over the socket --------------------------------------------------------
    def _watch(self) -> None:
        if self._loop is not None:
            return
        self._loop, self._descriptor = asyncio.get_running_loop(), self.pgconn.socket
        self._loop.add_reader(self._descriptor, self._go_on, READY_R)

    def _write(self, writes: bool) -> None:
        """What the socket does not take at once is sent when it has room."""
        if writes == self._writes or self._loop is None:
            return
        self._writes = writes
        if writes:
            self._loop.add_writer(self._descriptor, self._go_on, READY_W)
        else:
            self._loop.remove_writer(self._descriptor)

    def _keep(self) -> None:
        """Watch on, so that the end of an idle connection is known at once; unless libpq has closed
        the socket."""
        if self.pgconn.status == ConnStatus.OK and not self._given_up:
            self._watch()
            self._write(False)
        else:
            self._leave()
            self._say_gone()

    def _leave(self) -> None:
        """Before anybody else watches the socket, and before its number is another's."""
        loop, self._loop, self._writes = self._loop, None, False
        if loop is None or loop.is_closed():
            return
        for remove in (loop.remove_writer, loop.remove_reader):
            with suppress(OSError):  # libpq has closed the socket
                remove(self._descriptor)


def settle(future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
    """With an answer or an error, unless nobody waits for it any more."""
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)


def _rest(gen: PQGen[RV], wanted: Wait) -> PQGen[RV]:
    """A statement that has begun, from where it waits."""
    try:
        while True:
            ready = yield wanted
            wanted = gen.send(ready or READY_NONE)
    except StopIteration as end:
        return cast(RV, end.value)
