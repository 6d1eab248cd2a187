"""A connection whose socket the event loop watches for as long as the connection lives (ADR 20).

The loop's callback may never come: for a socket with a pending error, uvloop calls it once and
never again. So while a statement runs, a timer also calls ``look``, and ``give_up`` when the
statement's time is over.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, cast

import psycopg
from psycopg.abc import RV, PQGen, Transformer as Transforms
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import READY_NONE, READY_R, READY_W, WAIT_R, WAIT_RW, WAIT_W, Ready, Wait

from leasework.pg.sql import Query
from leasework.tuning import Tuning

Row = tuple[Any, ...]
Ended = Callable[[Any, BaseException | None], None]
"""Called with a statement's result or its error."""
OnNotification = Callable[[str | None], None]
"""Called with the text of each notification, and once with None when the connection has ended."""

_FORGOTTEN = ("0A000", "26000")
"""A table has changed since the statement was prepared, or the server no longer has the statement
(psycopg deallocates all when it rolls back). It was not executed, and is sent unprepared."""
_GOOD = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class Link(psycopg.AsyncConnection[Row]):
    """A psycopg connection of one event loop, with a faster way to send statements."""

    plain: ClassVar[bool] = False
    """Use psycopg's own ways instead: see :mod:`leasework.pg.connection.fast`. For tests."""
    _loop: asyncio.AbstractEventLoop | None = None
    """The loop that watches the socket, if one does."""
    _descriptor = -1
    _writes = False
    """The loop also watches for room to write."""
    _steps: PQGen[Any] | None = None
    """The current statement, which is resumed when there is input."""
    _ended: Ended | None = None
    """The callback of the current statement."""
    _transformer: Transforms | None = None
    """Converts values and rows. It also remembers how."""
    _given_up = False
    _on_notification: OnNotification | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._uses: Counter[tuple[Query, tuple[int, ...]]] = Counter()
        self._made = 0
        self._prepared_as: dict[tuple[Query, tuple[int, ...]], bytes] = {}
        """The names of the statements that ``send`` has prepared, by text and types."""

    @property
    def usable(self) -> bool:
        """Whether the connection is open and in no transaction."""
        status = self.pgconn.transaction_status
        return not self._given_up and not self.closed and status == TransactionStatus.IDLE

    def send(self, query: Query, params: Mapping[str, Any], ended: Ended) -> None:
        """Execute a statement as its own transaction. ``ended`` is called once, with the result
        (see ``rows``) or a psycopg.Error, even if the caller was cancelled. Raises psycopg.Error if
        the statement cannot be sent."""
        self._refuse_to_share()
        if self.lock.locked():
            raise psycopg.OperationalError("another statement is under way")
        steps = self._execution(query, params)
        try:
            wanted = next(steps)
        except BaseException:
            self._keep()
            raise
        self._begin(steps, wanted, ended)

    def rows(self, result: PGresult) -> list[Row]:
        """Return the rows of a result in Python's types, even after the next statement was sent.
        Raises psycopg.Error."""
        if not result.nfields:
            return []
        assert self._transformer is not None
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    async def wait(self, gen: PQGen[RV], *limits: Any, **named: Any) -> RV:
        """Execute one of psycopg's own statements. Raises psycopg.Error."""
        self._refuse_to_share()
        if self.plain or limits or named:  # a time limit is psycopg's
            self._leave()
            try:
                return await super().wait(gen, *limits, **named)
            finally:
                self._keep()
        try:
            wanted = next(gen)
        except StopIteration as end:
            await asyncio.sleep(0)  # a COPY may never wait: let the loop run
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

    def on_notification(self, call: OnNotification) -> None:
        """Pass notifications to ``call`` from now on, in the loop's callback. It must not raise."""
        if self._on_notification is None:  # for those that psycopg's own statements read
            self.add_notify_handler(
                lambda note: self._on_notification and self._on_notification(note.payload)
            )
        self._on_notification = call

    def look(self) -> None:
        """Read input for the current statement, even if the loop has reported none."""
        if self._steps is not None:
            self._go_on(READY_R)

    def give_up(self, why: str) -> None:
        """Shut down the socket. The current statement's caller gets an error at once, and the
        connection cannot be used any more. It must still be closed."""
        with suppress(psycopg.Error, OSError):
            # without a new descriptor, because the process may have none left
            borrowed = socket.socket(fileno=self.fileno())
            try:
                borrowed.shutdown(socket.SHUT_RDWR)
            finally:
                borrowed.detach()
        self._end(why)

    async def close(self) -> None:
        self._end("the connection was closed")
        await super().close()

    def _execution(self, query: Query, params: Mapping[str, Any]) -> PQGen[PGresult]:
        """Send a statement and read its result. Raises psycopg.Error."""
        transformer = self._transformer = self._transformer or Transformer(self)
        values = transformer.dump_sequence([params[name] for name in query.names], query.formats)
        types, formats = transformer.types or (), transformer.formats
        name = self._prepared_as.get((query, types))
        if name is None:
            big = sum(len(value) for value in values if value is not None) > Tuning.prepare_bytes
            name = yield from self._prepare(query, types, at_once=big)
        if name is not None:
            self.pgconn.send_query_prepared(name, values, formats)
            result = yield from _result(self.pgconn)
            if result.status in _GOOD:
                return result
            error = self._error(result)
            if error.sqlstate not in _FORGOTTEN:
                raise error
            del self._prepared_as[query, types]
            self._uses[query, types] = 0
        self.pgconn.send_query_params(query.text, values, types, formats)
        result = yield from _result(self.pgconn)
        if result.status not in _GOOD:
            raise self._error(result)
        return result

    def _prepare(
        self, query: Query, types: tuple[int, ...], *, at_once: bool
    ) -> PQGen[bytes | None]:
        """Return the name of the prepared statement. None if it is not to be prepared yet."""
        key, known = (query, types), self._prepared_as
        self._uses[key] += 1
        possible = self.prepare_threshold is not None and len(known) < Tuning.prepared_statements
        if not possible or (self._uses[key] < Tuning.prepare_uses and not at_once):
            return None
        self._made += 1
        name = b"leasework_%d" % self._made
        self.pgconn.send_prepare(name, query.text, types)
        result = yield from _result(self.pgconn)
        if result.status != ExecStatus.COMMAND_OK:
            raise self._error(result)
        known[key] = name
        return name

    def _error(self, result: PGresult) -> psycopg.Error:
        return psycopg.errors.error_from_result(result, encoding=self.info.encoding)

    def _begin(self, steps: PQGen[Any], wanted: Wait, ended: Ended) -> None:
        if self._loop is None:
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
            if self._writes:
                self._write(False)
            ended(end.value, None)
        except BaseException as wrong:
            self._steps = self._ended = None
            self._keep()
            ended(None, wrong)
        else:
            if wanted != WAIT_R or self._writes:
                self._write(bool(wanted & WAIT_W))
        if self._on_notification:
            self._pass_on()

    def _pass_on(self) -> None:
        """Pass on notifications that were read, alone or with a statement's result."""
        while self._on_notification and (note := self.pgconn.notifies()):
            self._on_notification(note.extra.decode(errors="replace"))

    def _take_in(self) -> None:
        """Read input between two statements: a notice, a changed setting, or the connection's end.
        In a transaction, leave it to the next statement: if the connection were closed here,
        psycopg would end the transaction's block without an error, as if it had been committed."""
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
        self._report_end()

    def _report_end(self) -> None:
        call, self._on_notification = self._on_notification, None
        if call is not None:
            call(None)

    def _refuse_to_share(self) -> None:
        if self._steps is not None:
            raise psycopg.OperationalError("another statement is under way")
        if self._given_up:
            raise psycopg.OperationalError("the connection was shut down")

    async def _stop(self, gen: PQGen[Any]) -> None:
        """Cancel the statement in the server, as psycopg does, and read to its end, so that the
        connection can be used again. If that fails, close the connection."""
        self._steps = self._ended = None
        if self._given_up or self.pgconn.transaction_status != TransactionStatus.ACTIVE:
            return
        self._leave()
        try:
            async with asyncio.timeout(Tuning.cancelled_seconds):
                await self.cancel_safe(timeout=Tuning.cancelled_seconds)
                await super().wait(_rest(gen, WAIT_R))
        except psycopg.errors.QueryCanceled:
            pass
        except BaseException as error:
            self.pgconn.finish()
            if not isinstance(error, Exception):
                raise
        finally:
            self._keep()

    def _watch(self) -> None:
        if self._loop is not None:
            return
        self._loop, self._descriptor = asyncio.get_running_loop(), self.pgconn.socket
        self._loop.add_reader(self._descriptor, self._go_on, READY_R)

    def _write(self, writes: bool) -> None:
        """Watch for room to write, or stop watching for it."""
        if writes == self._writes or self._loop is None:
            return
        self._writes = writes
        if writes:
            self._loop.add_writer(self._descriptor, self._go_on, READY_W)
        else:
            self._loop.remove_writer(self._descriptor)

    def _keep(self) -> None:
        """Continue to watch the socket, so that the end of an idle connection is noticed at once.
        Stop if libpq has closed the socket."""
        if self.pgconn.status == ConnStatus.OK and not self._given_up:
            self._watch()
            self._write(False)
        else:
            self._leave()
            self._report_end()

    def _leave(self) -> None:
        """Stop watching. Required before psycopg watches the socket, and before its descriptor is
        reused."""
        loop, self._loop, self._writes = self._loop, None, False
        if loop is None or loop.is_closed():
            return
        for remove in (loop.remove_writer, loop.remove_reader):
            with suppress(OSError):  # libpq has closed the socket
                remove(self._descriptor)


def settle(future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
    """Set the future's result or error, unless it is already done."""
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)


def _rest(gen: PQGen[RV], wanted: Wait) -> PQGen[RV]:
    """Continue a statement that waits for ``wanted``."""
    try:
        while True:
            ready = yield wanted
            wanted = gen.send(ready or READY_NONE)
    except StopIteration as end:
        return cast(RV, end.value)


def _result(pgconn: PGconn) -> PQGen[PGresult]:
    """Send all output, and read until the server is ready for the next statement."""
    while pgconn.flush():
        if (yield WAIT_RW) & READY_R:
            pgconn.consume_input()  # otherwise the server may block until its output is read
    result: PGresult | None = None
    while True:
        while pgconn.is_busy():
            yield WAIT_R
            try:
                pgconn.consume_input()
            except psycopg.OperationalError:
                if result is None or result.status in _GOOD:
                    raise  # the statement is committed only when the server is ready again
                return result  # the server's reason for closing the connection
        following = pgconn.get_result()
        if following is None:
            break
        result = following
    if result is None:
        raise psycopg.OperationalError("the connection is lost")
    return result
