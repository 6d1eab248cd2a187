"""A pool: a few connections of one event loop, opened when needed and reopened when lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from leasework import errors, own_tasks
from leasework.config import Settings
from leasework.pg.connection.fast.exchange import Row
from leasework.pg.connection.fast.link import Ear, Link, settle
from leasework.pg.connection.session import Params, ServerFacts, Session
from leasework.pg.schema.migrate import SCHEMA_NUMBER, check_known
from leasework.tuning import Tuning

T = TypeVar("T")


class Pool:
    """At most ``size`` sessions. Callers wait in the order in which they came.

    If a caller is cancelled, its statement continues to its end in the background. Otherwise it
    would block the loop, or leave its connection in an unknown state.
    """

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
        self._size = size
        self._idle_seconds = idle_seconds
        self._trimming: asyncio.TimerHandle | None = None
        self._process = own_tasks.generation()
        self._turn = asyncio.Semaphore(size)
        self._running: set[asyncio.Task[Any]] = set()
        self._closing = asyncio.Lock()
        self._ears: set[Ear] = set()
        self.statements = 0
        """The number of statements sent, for the tests of idle costs and for metrics."""

    async def fetch(
        self, name: str, params: Params, timeout: float | None = None, aside: bool = False
    ) -> list[Row]:
        """Run one statement and return its rows. ``timeout`` is in seconds, for the wait and the
        run together. ``aside``: use a new connection, so that no other call waits for this one, and
        where the planner may choose any scan."""
        self._check_process()
        seconds = self._settings.call_timeout if timeout is None else timeout
        if aside:
            return await self._detached(self._fetch_aside(name, params, seconds))
        if Link.plain or self._turn.locked() or not self._idle or not self._idle[-1].usable:
            return await self._detached(self._fetch(name, params, seconds))
        await self._turn.acquire()  # does not wait
        return await self._fetch_on(self._idle.pop(), name, params, seconds)

    def now(self) -> float:
        """Return the time of the loop's clock, in seconds."""
        return asyncio.get_running_loop().time()

    def seconds_for(self, size: int) -> float:
        """Return the time limit, in seconds, of a call that sends ``size`` bytes."""
        return self._settings.call_timeout + size * Tuning.byte_seconds

    async def copy(self, name: str, rows: Iterable[str], most: int, most_bytes: int) -> None:
        """Run a COPY of at most ``most`` rows and ``most_bytes``. Its time limit grows with the
        rows and bytes that were sent."""
        self._check_process()
        await self._detached(self._copy(name, rows, most, most_bytes))

    async def listen(self, ear: Ear) -> ServerFacts:
        """Make one of the connections listen to the schema's channel, and pass notifications to
        ``ear`` until ``deafen``. If the returned facts say ``pooled``, it does not listen."""
        self._check_process()
        self._ears.add(ear)
        return await self._detached(self._listen())

    def deafen(self, ear: Ear) -> None:
        self._ears.discard(ear)

    def _check_process(self) -> None:
        if self._process != own_tasks.generation():
            raise errors.WrongConnection(
                "a forked child cannot use the connections of its parent",
                do="End the child with os._exit(), or start a new process instead of forking",
            )

    async def _detached(self, work: Coroutine[Any, Any, T]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._start(_answered(work, answer))
        return await answer

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = own_tasks.start(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _fetch(self, name: str, params: Params, seconds: float) -> list[Row]:
        """Wait for a session, and run one statement on it."""
        session, left = await self._session(seconds)
        return await self._fetch_on(session, name, params, left)

    async def _fetch_on(
        self, session: Session, name: str, params: Params, left: float
    ) -> list[Row]:
        """Run one statement on the session, and give the session back."""
        self.statements += 1
        if not Link.plain:
            return await session.fetch_fast(name, params, left, lambda: self._give_back(session))
        try:
            return await session.fetch(name, params, left)
        finally:
            self._give_back(session)

    async def _fetch_aside(self, name: str, params: Params, seconds: float) -> list[Row]:
        give_up_at = self.now() + seconds
        session = await Session.open(self._settings, f"{self._role} aside", seconds)
        self._open.add(session)
        try:
            self.statements += 1
            return await session.fetch(name, params, give_up_at - self.now())
        finally:
            await self._drop(session)

    async def _copy(self, name: str, rows: Iterable[str], most: int, most_bytes: int) -> None:
        session, left = await self._session(self._settings.call_timeout)
        try:
            self.statements += 1
            await session.copy(name, rows, left, most, most_bytes)
        finally:
            self._give_back(session)

    async def _listen(self) -> ServerFacts:
        session, left = await self._session(self._settings.call_timeout)
        try:
            if not session.facts.pooled:
                self.statements += 1
                await session.listen(self._tell, left)
            return session.facts
        finally:
            self._give_back(session)

    def _tell(self, text: str | None) -> None:
        for ear in list(self._ears):
            ear(text)

    async def _session(self, seconds: float) -> tuple[Session, float]:
        """Wait for a session, at most ``seconds``. Return it and how many of them are left. Give it
        back with ``_give_back``."""
        give_up_at = self.now() + seconds
        if self._turn.locked():
            await self._wait_turn(give_up_at, seconds)
        else:
            await self._turn.acquire()  # does not wait
        try:
            return await self._take(give_up_at - self.now()), give_up_at - self.now()
        except BaseException:
            self._turn.release()
            raise

    def _give_back(self, session: Session) -> None:
        self._idle.append(session)  # the next caller checks whether it is usable
        self._turn.release()
        if self._idle_seconds is not None:
            session.idle_since = self.now()
            self._trim_in(self._idle_seconds)

    def _trim_in(self, seconds: float) -> None:
        if self._trimming is None:
            self._trimming = asyncio.get_running_loop().call_later(seconds, self._trim)

    def _trim(self) -> None:
        """Close sessions that have been idle for too long. The pool takes the last session first,
        so the first ones have been idle for longest."""
        self._trimming = None
        assert self._idle_seconds is not None
        old = self.now() - self._idle_seconds
        while self._idle and self._idle[0].idle_since <= old:
            self._start(self._drop(self._idle.pop(0)))
        if self._idle:
            self._trim_in(self._idle[0].idle_since - old)

    async def _wait_turn(self, give_up_at: float, seconds: float) -> None:
        try:
            async with asyncio.timeout_at(give_up_at):
                await self._turn.acquire()
        except TimeoutError:
            raise errors.Unavailable(
                f"no connection was free within {seconds:.3g} s",
                do="Make fewer calls at once"
                + (", or raise user_connections" if self._role == "user" else ""),
            ) from None

    async def _take(self, seconds: float) -> Session:
        while self._idle:
            session = self._idle.pop()
            if session.usable:
                return session
            await self._drop(session)
        session = await Session.open(self._settings, self._role, seconds)
        try:
            check_schema(session.facts)
        except errors.ServerError:
            await session.close()
            raise
        self._open.add(session)
        return session

    async def _drop(self, session: Session) -> None:
        self._open.discard(session)
        await session.close()

    def shut(self) -> None:
        """Shut down the socket of every connection. Current callers get Unavailable."""
        for session in self._open:
            session.shut()

    async def close(self) -> None:
        """Wait for current calls, then close all connections."""
        async with self._closing:
            while not await self._closed():
                pass

    def abandon(self) -> None:
        """Close all connections of an event loop that is closed. No statement can be running."""
        for session in self._open:
            session.connection.pgconn.finish()
        self._open.clear()
        self._idle.clear()

    async def _closed(self) -> bool:
        """Close all connections. Return False if there was a new call meanwhile."""
        while self._running:
            await asyncio.wait(self._running)  # gather() of finished tasks would never yield
        taken = 0
        try:
            while taken < self._size:
                await self._turn.acquire()
                taken += 1
            if self._running:
                return False
            for session in list(self._open):
                await self._drop(session)
            self._idle.clear()
            if self._trimming:
                self._trimming.cancel()
                self._trimming = None
            return True
        finally:
            for _ in range(taken):
                self._turn.release()


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


def check_schema(facts: ServerFacts) -> None:
    """Check the schema's version. Raises SchemaMissing, SchemaTooOld or SchemaTooNew."""
    check_numbers(facts.schema_number, facts.schema_min_known)


def check_numbers(number: int | None, min_known: int) -> None:
    """Check the numbers of the schema's newest migration and of the oldest that a program must
    know. Errors: see :func:`check_schema`."""
    if number is None:
        raise errors.SchemaMissing(
            "the database has no leasework schema", do="Run: leasework schema apply"
        )
    if number < SCHEMA_NUMBER:
        raise errors.SchemaTooOld(
            f"the schema has {number} migrations, this version needs {SCHEMA_NUMBER}",
            do="Run: leasework schema apply",
        )
    check_known(min_known)
