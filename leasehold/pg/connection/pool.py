"""A few connections of one event loop, opened when needed and opened again when lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from leasehold import errors, own
from leasehold.config import Settings
from leasehold.pg.connection.exchange import Answer, Row
from leasehold.pg.connection.link import Ear, settle
from leasehold.pg.connection.session import BYTE_SECONDS, Params, ServerFacts, Session, read
from leasehold.pg.schema.migrate import SCHEMA_NUMBER

T = TypeVar("T")


class Pool:
    """At most ``size`` sessions; callers wait their turn, first come first served.

    A call that is cancelled by its caller goes on to its end behind the scenes: a statement
    half-way through must neither block the loop nor leave a connection in an unknown state.
    """

    def __init__(
        self, settings: Settings, role: str, size: int = 1, idle_seconds: float | None = None
    ) -> None:
        """``idle_seconds``: a connection that nobody has used for so long is closed."""
        self._settings = settings
        self._role = role
        self._idle: list[Session] = []
        self._open: set[Session] = set()
        self._size = size
        self._idle_seconds = idle_seconds
        self._trimming: asyncio.TimerHandle | None = None
        self._process = own.generation()
        self._turn = asyncio.Semaphore(size)
        self._running: set[asyncio.Task[Any]] = set()
        self._closing = asyncio.Lock()
        self._ears: set[Ear] = set()
        self.facts: ServerFacts | None = None
        self.statements = 0
        """How many were sent, for the idle-cost tests and for metrics."""

    async def fetch(
        self, name: str, params: Params, timeout: float | None = None, aside: bool = False
    ) -> list[Row]:
        """The rows of one statement. ``timeout`` in seconds, for waiting and running together.
        ``aside``: on a connection that is opened for it, so that nobody waits behind it, and where
        the planner is free to scan what it likes."""
        self._check_process()
        seconds = self._settings.call_timeout if timeout is None else timeout
        if aside:
            return await self._detached(self._fetch_aside(name, params, seconds))
        if self._turn.locked() or not self._idle or not self._idle[-1].usable:
            return await self._detached(self._fetch(name, params, seconds))
        await self._turn.acquire()  # at once
        return await self._sent(self._idle.pop(), name, params, seconds)

    def now(self) -> float:
        """Seconds of the loop's clock."""
        return asyncio.get_running_loop().time()

    def seconds_for(self, size: int) -> float:
        """The time limit of a call that sends so many bytes."""
        return self._settings.call_timeout + size * BYTE_SECONDS

    async def copy(self, name: str, rows: Iterable[str], most: int, most_bytes: int) -> None:
        """COPY; its timeout grows with the rows and bytes that were sent, of which there are at
        most so many."""
        self._check_process()
        await self._detached(self._copy(name, rows, most, most_bytes))

    async def listen(self, ear: Ear) -> ServerFacts:
        """Have one of the connections listen to the schema's channel, for ``ear`` until
        ``deafen``. Behind a pooler, as the facts say, none listens."""
        self._check_process()
        self._ears.add(ear)
        return await self._detached(self._listen())

    def deafen(self, ear: Ear) -> None:
        self._ears.discard(ear)

    def _check_process(self) -> None:
        if self._process != own.generation():
            raise errors.WrongConnection(
                "a forked child cannot use the connections of its parent",
                do="End the child with os._exit(), or start a new process instead of a fork",
            )

    async def _detached(self, work: Coroutine[Any, Any, T]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._start(_answered(work, answer))
        return await answer

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = own.start(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _fetch(self, name: str, params: Params, seconds: float) -> list[Row]:
        """When it has its turn."""
        give_up_at = self.now() + seconds
        session = await self._session(give_up_at, seconds)
        return await self._sent(session, name, params, give_up_at - self.now())

    async def _sent(self, session: Session, name: str, params: Params, left: float) -> list[Row]:
        """The session and its turn are given back when the statement has ended, whether or not
        somebody still waits for its rows; whoever is next goes on while they are read."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def ended(came: Answer | None, error: BaseException | None) -> None:
            self._give_back(session)
            settle(answer, came, error)

        self.statements += 1
        try:
            session.send(name, params, left, ended)
        except BaseException:
            self._give_back(session)
            raise
        return read(await answer)

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
        seconds = self._settings.call_timeout
        give_up_at = self.now() + seconds
        session = await self._session(give_up_at, seconds)
        try:
            self.statements += 1
            await session.copy(name, rows, give_up_at - self.now(), most, most_bytes)
        finally:
            self._give_back(session)

    async def _listen(self) -> ServerFacts:
        seconds = self._settings.call_timeout
        give_up_at = self.now() + seconds
        session = await self._session(give_up_at, seconds)
        try:
            if not session.facts.pooled:
                self.statements += 1
                await session.listen(self._tell, give_up_at - self.now())
            return session.facts
        finally:
            self._give_back(session)

    def _tell(self, text: str | None) -> None:
        for ear in list(self._ears):
            ear(text)

    async def _session(self, give_up_at: float, seconds: float) -> Session:
        """To be given back."""
        if self._turn.locked():
            await self._wait_turn(give_up_at, seconds)
        else:
            await self._turn.acquire()  # at once
        try:
            return await self._take(give_up_at - self.now())
        except BaseException:
            self._turn.release()
            raise

    def _give_back(self, session: Session) -> None:
        self._idle.append(session)  # whoever takes it looks whether it can be used
        self._turn.release()
        if self._idle_seconds is not None:
            session.idle_since = self.now()
            self._trim_in(self._idle_seconds)

    def _trim_in(self, seconds: float) -> None:
        if self._trimming is None:
            self._trimming = asyncio.get_running_loop().call_later(seconds, self._trim)

    def _trim(self) -> None:
        """Close what nobody has used for long. The last one given back is the first to be taken, so
        that the first ones have been idle for longest."""
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
            raise errors.Unavailable(f"no connection was free within {seconds:.3g} s") from None

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
        self.facts = session.facts
        self._open.add(session)
        return session

    async def _drop(self, session: Session) -> None:
        self._open.discard(session)
        await session.close()

    def shut(self) -> None:
        """End every connection at its socket; who waits on one gets Unavailable."""
        for session in self._open:
            session.shut()

    async def close(self) -> None:
        """Wait for what runs, then close."""
        async with self._closing:
            while not await self._closed():
                pass

    def abandon(self) -> None:
        """The loop is closed: nothing can be waited for, and nothing is on its way."""
        for session in self._open:
            session.connection.pgconn.finish()
        self._open.clear()
        self._idle.clear()

    async def _closed(self) -> bool:
        """False: somebody called while we waited."""
        while self._running:
            await asyncio.wait(self._running)  # gather() of what has ended never yields
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
    """As asyncio.shield, but one turn of the loop earlier."""
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
    """Raises SchemaMissing, SchemaTooOld or SchemaTooNew."""
    check_numbers(facts.schema_number, facts.schema_min_known)


def check_numbers(number: int | None, min_known: int) -> None:
    """The same of the numbers that the schema says of itself."""
    if number is None:
        raise errors.SchemaMissing(
            "the database has no leasehold schema", do="Run: leasehold schema apply"
        )
    if number < SCHEMA_NUMBER:
        raise errors.SchemaTooOld(
            f"the schema has {number} migrations, this version needs {SCHEMA_NUMBER}",
            do="Run: leasehold schema apply",
        )
    if min_known > SCHEMA_NUMBER:
        raise errors.SchemaTooNew(
            f"the schema needs a leasehold that knows migration {min_known}, "
            f"this one knows {SCHEMA_NUMBER}",
            do="Upgrade leasehold in this process",
        )
