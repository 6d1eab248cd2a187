"""A pool: a few connections of one event loop, opened when needed and reopened when lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from leasework import errors, own_tasks
from leasework.config import Settings
from leasework.pg.connection.fast.link import Link, OnNotification, Row, settle
from leasework.pg.connection.session import Params, ServerFacts, Session
from leasework.pg.schema.migrate import SCHEMA_NUMBER, check_known, missing
from leasework.tuning import Tuning

T = TypeVar("T")


class Pool:
    """At most ``size`` sessions. Callers wait in the order in which they came. One session is left
    to calls that do not wait for other transactions, unless there is only one. If a caller is
    cancelled while it waits for a session, nothing is sent. Afterwards its statement continues to
    its end, because its connection would otherwise be in an unknown state."""

    def __init__(
        self, settings: Settings, role: str, size: int = 1, idle_seconds: float | None = None
    ) -> None:
        """``idle_seconds``: close a connection that was idle for this long."""
        self.call_timeout = settings.call_timeout
        """Seconds that a call may take. Then a process that still reads has given it up."""
        self._settings = settings
        self._role = role
        self._idle: list[Session] = []
        self._open: set[Session] = set()
        self._apart: set[Session] = set()
        """Those of the statements aside. They do not count."""
        self._opening: dict[_Waiting, asyncio.Task[Session]] = {}
        self._prompt: deque[_Waiting] = deque()
        self._patient: deque[_Waiting] = deque()
        """The calls without a session. Those that may wait for other transactions are patient."""
        self._patients = 0
        """How many patient calls have a session."""
        self._refusal: errors.Unavailable | None = None
        """Why no further connection could be opened a moment ago."""
        self._size = size
        self._idle_seconds = idle_seconds
        self._trimming: asyncio.TimerHandle | None = None
        self._process = own_tasks.generation
        self._running: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()
        """Set when a call has ended."""
        self._on_notification: set[OnNotification] = set()
        self.statements = 0
        """The number of statements sent, for the tests of idle costs and for metrics."""

    async def fetch(
        self,
        name: str,
        params: Params,
        timeout: float | None = None,
        aside: bool = False,
        waits: bool = False,
    ) -> list[Row]:
        """Run one statement and return its rows. ``timeout`` is in seconds, for the wait and the
        run together. ``aside``: use a new connection, so that no other call waits for this one, and
        where the planner may choose any scan. ``waits``: it may wait for other transactions."""
        if self._process != own_tasks.generation:
            raise _of_the_parent()
        left = self._settings.call_timeout if timeout is None else timeout
        if aside:
            return await self._fetch_aside(name, params, left)
        if waits or not self._idle or not self._idle[-1].connection.usable:
            session, left = await self._session(left, waits)
        else:
            session = self._idle.pop()
        self.statements += 1
        if Link.plain:
            return await self._detached(self._run(session, session.fetch(name, params, left)))
        return await session.fetch_fast(name, params, left, lambda: self._give_back(session))

    def now(self) -> float:
        """Return the time of the loop's clock, in seconds."""
        return asyncio.get_running_loop().time()

    def seconds_for(self, size: int) -> float:
        """Return the time limit, in seconds, of a call that sends ``size`` bytes."""
        return self._settings.call_timeout + size * Tuning.byte_seconds

    async def copy(
        self,
        name: str,
        rows: Iterable[str],
        most: int,
        most_bytes: int,
        first: tuple[str, Params] | None = None,
    ) -> None:
        """Run a COPY of at most ``most`` rows and ``most_bytes``. Its time limit grows with the
        rows and bytes that were sent. ``first``: a statement to run before it, in the same
        transaction."""
        session, left = await self._session(self._settings.call_timeout)
        self.statements += 1
        copy = session.copy(name, rows, left, most, most_bytes, first)
        await self._detached(self._run(session, copy))

    async def listen(self, call: OnNotification) -> ServerFacts:
        """Make one of the connections listen to the schema's channel, and pass notifications to
        ``call`` until ``unlisten``. If the returned facts say ``pooled``, it does not listen."""
        self._on_notification.add(call)
        session, left = await self._session(self._settings.call_timeout)
        if session.facts.pooled:
            self._give_back(session)
        else:
            self.statements += 1
            await self._detached(self._run(session, session.listen(self._pass_on, left)))
        return session.facts

    def unlisten(self, call: OnNotification) -> None:
        self._on_notification.discard(call)

    async def _detached(self, work: Coroutine[Any, Any, T]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._start(_answered(work, answer))
        return await answer

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = own_tasks.start(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._changed.set()

    async def _run(self, session: Session, work: Coroutine[Any, Any, T]) -> T:
        """Use the session, and give it back."""
        try:
            return await work
        finally:
            self._give_back(session)

    async def _fetch_aside(self, name: str, params: Params, seconds: float) -> list[Row]:
        give_up_at = self.now() + seconds
        session = await Session.open(self._settings, f"{self._role} aside", seconds)
        self._apart.add(session)

        async def fetch() -> list[Row]:
            try:
                return await session.fetch(name, params, give_up_at - self.now())
            finally:
                self._apart.discard(session)
                await session.close()

        self.statements += 1
        return await self._detached(fetch())

    def _pass_on(self, text: str | None) -> None:
        for call in list(self._on_notification):
            call(text)

    async def _session(self, seconds: float, waits: bool = False) -> tuple[Session, float]:
        """Wait for a session, at most ``seconds``. Return it and how many of them are left. Give it
        back with ``_give_back``."""
        if self._process != own_tasks.generation:
            raise _of_the_parent()
        loop = asyncio.get_running_loop()
        turn = _Waiting(loop.create_future(), seconds, waits)
        (self._patient if waits else self._prompt).append(turn)
        self._serve()
        timer = None if turn.session.done() else loop.call_at(turn.give_up_at, self._late, turn)
        try:
            return await turn.session, turn.give_up_at - loop.time()
        except asyncio.CancelledError:
            if not turn.session.cancelled() and turn.session.exception() is None:
                self._give_back(turn.session.result())  # it came in the same moment
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _serve(self) -> None:
        """Give sessions to those that are next, and open more."""
        while queue := self._next():
            if self._idle:
                session = self._idle.pop()
                if session.usable:
                    self._lend(session, queue.popleft())
                else:
                    self._drop(session)
            elif self._count() < self._most():
                turn = queue.popleft()
                self._patients += turn.waits
                opening = self._opening[turn] = own_tasks.start(self._open_for(turn))
                opening.add_done_callback(partial(self._opened, turn))
            else:
                return

    def _next(self) -> deque[_Waiting] | None:
        """Return the queue whose first call gets a session next."""
        for queue in (self._prompt, self._patient):
            while queue and queue[0].session.done():  # cancelled, or too late
                queue.popleft()
        prompt, patient = self._prompt, self._patient
        if patient and self._patients < max(1, self._most() - 1):
            return prompt if prompt and prompt[0].came < patient[0].came else patient
        return prompt or None

    def _count(self) -> int:
        return len(self._open) + len(self._opening)

    def _most(self) -> int:
        """Return how many sessions there can be now."""
        return self._count() or self._size if self._refusal else self._size

    def _lend(self, session: Session, turn: _Waiting) -> None:
        self._patients += turn.waits
        session.waits = turn.waits
        turn.session.set_result(session)

    def _give_back(self, session: Session) -> None:
        self._patients -= session.waits
        session.waits = False
        self._idle.append(session)  # the next caller checks whether it is usable
        if self._idle_seconds is not None:
            loop = asyncio.get_running_loop()
            session.idle_since = loop.time()
            if self._trimming is None:
                self._trimming = loop.call_later(self._idle_seconds, self._trim)
        if self._prompt or self._patient:
            self._serve()
        self._changed.set()

    def _late(self, turn: _Waiting) -> None:
        turn.late = True
        if turn in self._opening:  # that has its own time limit
            return
        why = self._refusal or errors.Unavailable(
            f"no connection was free within {turn.seconds:.3g} s",
            do="Make fewer calls at once"
            + (", or raise user_connections" if self._role == "user" else ""),
        )
        error = errors.Unavailable(why.what, got=why.got, do=why.do)  # each call raises its own
        settle(turn.session, None, error)

    async def _open_for(self, turn: _Waiting) -> Session:
        session = await Session.open(self._settings, self._role, turn.give_up_at - self.now())
        try:
            check_schema(session.facts.schema_number, session.facts.schema_min_known)
        except errors.ServerError:
            await session.close()
            raise
        return session

    def _opened(self, turn: _Waiting, opening: asyncio.Task[Session]) -> None:
        del self._opening[turn]
        self._patients -= turn.waits
        if opening.cancelled():
            turn.session.cancel()
        elif (error := opening.exception()) is None:
            self._open.add(opening.result())
            if not turn.session.done():
                self._lend(opening.result(), turn)
            else:  # cancelled: it serves the next call
                self._give_back(opening.result())
        elif isinstance(error, errors.Unavailable) and not turn.late and self._count():
            # the server may permit no more: wait for the others
            self._refusal = error
            (self._patient if turn.waits else self._prompt).appendleft(turn)
            asyncio.get_running_loop().call_later(Tuning.refused_seconds, self._try_more)
        else:
            settle(turn.session, None, error)
        self._serve()
        self._changed.set()

    def _try_more(self) -> None:
        self._refusal = None
        self._serve()

    def _trim(self) -> None:
        """Close sessions that have been idle for too long. The pool takes the last session first,
        so the first ones have been idle for longest."""
        self._trimming = None
        assert self._idle_seconds is not None
        old = self.now() - self._idle_seconds
        while self._idle and self._idle[0].idle_since <= old:
            self._drop(self._idle.pop(0))
        if self._idle:
            left = self._idle[0].idle_since - old
            self._trimming = asyncio.get_running_loop().call_later(left, self._trim)

    def _drop(self, session: Session) -> None:
        self._open.discard(session)
        self._start(session.close())

    async def close(self) -> None:
        """Wait for current calls, then close all connections."""
        for turn, opening in self._opening.items():
            if turn.session.done():
                opening.cancel()
        while self._running or self._opening or len(self._idle) < len(self._open):
            self._changed.clear()
            await self._changed.wait()
        if self._trimming:
            self._trimming.cancel()
            self._trimming = None
        closing, self._idle = self._idle, []
        self._open.clear()
        for session in closing:
            await session.close()

    def abandon(self) -> None:
        """Close all connections at the end of their event loop, or after it."""
        for session in self._open | self._apart:
            with suppress(RuntimeError):  # the loop is closed
                session.shut()
            session.connection.pgconn.finish()
        self._open.clear()
        self._idle.clear()


class _Waiting:
    """A call that waits for a session."""

    def __init__(self, session: asyncio.Future[Session], seconds: float, waits: bool) -> None:
        self.session = session
        self.seconds = seconds
        self.came = session.get_loop().time()
        self.give_up_at = self.came + seconds
        self.waits = waits
        self.late = False


def _of_the_parent() -> errors.WrongConnection:
    return errors.WrongConnection(
        "a forked child cannot use the connections of its parent",
        do="End the child with os._exit(), or start a new process instead of forking",
    )


async def _answered(work: Coroutine[Any, Any, T], answer: asyncio.Future[T]) -> None:
    """Like asyncio.shield, but one iteration of the loop earlier."""
    try:
        result = await work
    except Exception as error:
        settle(answer, None, error)
    except BaseException:
        answer.cancel()
        raise
    else:
        settle(answer, result, None)


def check_schema(number: int | None, min_known: int) -> None:
    """Check the numbers of the schema's newest migration and of the oldest that a program must
    know. Raises SchemaMissing, SchemaTooOld or SchemaTooNew."""
    if not number:
        raise missing(tables=number is not None)
    if number < SCHEMA_NUMBER:
        raise errors.SchemaTooOld(
            f"the schema has {number} migrations, this version needs {SCHEMA_NUMBER}",
            do="Run: leasework schema apply",
        )
    check_known(min_known)
