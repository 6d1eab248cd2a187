"""``app.advisory_lock(...)``: PostgreSQL's advisory locks, with supervision."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TypedDict, get_args
from uuid import UUID

from leasework import errors, telemetry
from leasework.app.home import Home
from leasework.loops.recorder import as_row
from leasework.model.lock_key import LockKey, lock_key
from leasework.model.moments import Duration, in_seconds, is_number
from leasework.pg.users.advisory import LockSession
from leasework.tuning import Tuning

Scope = Literal["transaction", "session"]
"""How long an advisory lock lasts: see :meth:`App.advisory_lock`."""
LONGEST_WAIT_SECONDS = 86400.0
TRUST_SECONDS = 2.5
"""How long a lock counts as held after the start of the last query that confirmed it."""


class AdvisoryGiven(TypedDict, total=False):
    """The options of :meth:`App.advisory_lock`."""

    scope: Scope
    shared: bool
    on: Any
    timeout: Duration | None
    wide: bool
    job: UUID | None


class AdvisoryLock:
    """An advisory lock, acquired at most once at a time. Use ``async with``, or :meth:`acquire` and
    :meth:`release`. For the options, see :meth:`App.advisory_lock`."""

    def __init__(
        self,
        app: Home,
        target: str | int | tuple[str | int, int],
        *,
        scope: Scope = "transaction",
        shared: bool = False,
        on: Any = None,
        timeout: Duration | None = None,
        wide: bool = False,
        job: UUID | None = None,
        cancel: bool = True,
    ) -> None:
        seconds = in_seconds(timeout)
        _check_options(scope, on, seconds, job)
        self._app = app
        self.key = lock_key(target, wide=wide)
        self.scope = scope
        self.shared = bool(shared)
        self.timeout: float | None = seconds
        self.lost: asyncio.Event = asyncio.Event()
        """Set when the database no longer shows the lock, or does not answer."""
        self.why_lost: str | None = None
        """The reason, or None while the lock is not lost."""
        self.on = on
        self._job = job
        self._cancel = cancel
        self._session: LockSession | None = None
        self._confirmed_at = 0.0
        self._process = 0
        self._one = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._heard: list[Callable[[str], None]] = []
        self._body: asyncio.Task[Any] | None = None
        self._cancelled = False

    @property
    def held(self) -> bool:
        """Whether the database confirmed to this process less than 2.5 seconds ago that it holds
        the lock. Always False with ``on=``: that lock is held until your transaction ends."""
        return (
            self._session is not None
            and not self.lost.is_set()
            and self._process == os.getpid()
            and self._app.env.boot_now() - self._confirmed_at < TRUST_SECONDS
        )

    @property
    def pid(self) -> int | None:
        """The pid of the server process that holds the lock, as in ``pg_locks`` and ``leasework
        locks``. None with ``on=``, and while the lock is not acquired."""
        return self._session.pid if self._session else None

    async def verify(self) -> None:
        """Check with the database now. Raises LostLock."""
        session = self._session
        if session is None or self.lost.is_set() or self._process != os.getpid():
            raise self._lost_error()
        if not await self._confirm(session):
            raise self._lost_error()

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """When the lock is lost, call ``callback(why)`` in the event loop."""
        self._heard.append(callback)

    async def acquire(self) -> bool:
        """Try to acquire the lock, or wait at most ``timeout`` seconds. Return whether it is
        acquired.

        Raises UnsafeServer where the lock would protect nothing: for ``scope="session"`` behind a
        pooler, or on a server whose lock functions do nothing. Also raises Unavailable, Conflict
        (a deadlock), and with ``on=`` WrongConnection. Raises ConfigError if the lock is already
        acquired, or another name has the same key.
        """
        if self._session is not None:
            raise errors.ConfigError(
                "this lock is already acquired", got=self.key.label, do="Release it first"
            )
        await note_name(self._app, self.key)
        if self.on is not None:
            return await self.acquire_on()
        opening = asyncio.ensure_future(self._open())
        try:
            session = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.cancel()
            with suppress(asyncio.CancelledError, errors.LeaseworkError):
                if left := await opening:
                    await left.close()
            raise
        if session is None:
            return False
        self.lost.clear()
        self.why_lost = None
        self._session, self._process = session, os.getpid()
        self._watch = asyncio.create_task(self._watching(session), name="leasework-lock")
        return True

    async def acquire_on(self) -> bool:
        """Acquire the lock on the user's connection. Part of :meth:`acquire`."""
        app = self._app
        got, shown = await app.on_connection.advisory_lock(
            self.on, self.key, self.shared, self.timeout, not app.locks_work
        )
        if got and not shown:
            raise _does_nothing()
        app.locks_work = app.locks_work or got
        return got

    async def _open(self) -> LockSession | None:
        app = self._app
        settings = await app.located()
        session = await LockSession.open(
            settings,
            self.key,
            shared=self.shared,
            whole_session=self.scope == "session",
            job=str(self._job) if self._job else None,
            nonce=app.env.new_id().hex,
            wait=self.timeout,
        )
        try:
            if not await session.lock(self.timeout, settings.call_timeout):
                await session.close()
                return None
            asked_at = app.env.boot_now()
            if not await session.holds(settings.call_timeout):
                raise _does_nothing()
            self._confirmed_at = asked_at
        except BaseException:
            session.shut()
            await session.close()
            raise
        return session

    async def _watching(self, session: LockSession) -> None:
        env = self._app.env
        while True:
            due = self._confirmed_at + Tuning.verify_seconds
            await asyncio.sleep(max(0.0, due - env.boot_now()))
            if not await self._confirm(session):
                return

    async def _confirm(self, session: LockSession) -> bool:
        """Query pg_locks, at most until the last confirmation expires. Without a confirmation, the
        lock is lost."""
        env = self._app.env
        async with self._one:
            if self._session is not session or self.lost.is_set():
                return False
            asked_at = env.boot_now()
            left = max(0.5, self._confirmed_at + TRUST_SECONDS - asked_at)
            try:
                if await session.holds(left):
                    self._confirmed_at = asked_at
                    return True
                why = f"pg_locks does not show it for server process {session.pid}"
            except errors.LeaseworkError as error:
                why = str(error)
            self._lose(session, why)
            return False

    def _lose(self, session: LockSession, why: str) -> None:
        self.why_lost = why
        self.lost.set()
        session.shut()  # the server may still hold the lock: end its session
        if self._body is not None and self._cancel and self._body is not asyncio.current_task():
            self._cancelled = True
            self._body.cancel("the advisory lock was lost")
        failed: list[str] = []
        for callback in self._heard:
            try:
                callback(why)
            except Exception as error:
                failed.append(errors.told(error))
        self._telling = asyncio.create_task(self._tell(why, failed))

    async def _tell(self, why: str, failed: list[str]) -> None:
        """Emit the events: to the log at once, and to the table if the database answers."""
        name = self.key.label
        await _record(self._app, "lock_lost", {"name": name, "scope": self.scope, "why": why})
        for error in failed:
            await _record(self._app, "callback_failed", {"name": name, "error": error})

    async def release(self) -> None:
        """Release the lock. Raises LostLock if this process no longer held it. With ``on=`` this
        does nothing: the lock is released when your transaction ends."""
        session, self._session = self._session, None
        if session is None or self._process != os.getpid():
            return  # after a fork, the lock is the parent's
        watch, self._watch = self._watch, None
        try:
            async with self._one:
                # Wait for a query of pg_locks to end: if it were cancelled here, the driver would
                # cancel its statement on the server, which would abort the lock's transaction.
                if watch:
                    watch.cancel()
                if self.lost.is_set():
                    raise self._lost_error()
                await self._release(session)
        except asyncio.CancelledError:
            session.shut()
            raise
        finally:
            if watch:
                watch.cancel()
            await session.close()
            if self._telling:
                await asyncio.wait([self._telling], timeout=1.0)

    async def _release(self, session: LockSession) -> None:
        why = "this process no longer held it at the release"
        try:
            if await session.release(self._app.settings.call_timeout):
                return
        except errors.LeaseworkError as error:
            why = str(error)
        self._lose(session, why)
        raise self._lost_error()

    def _lost_error(self) -> errors.LostLock:
        return errors.LostLock(
            f"this process no longer holds the advisory lock {self.key.label}",
            got=self.why_lost or "it was never acquired, or it was released",
            do="Another session may hold it: stop, and roll back what is not committed",
        )

    async def __aenter__(self) -> AdvisoryLock:
        """Raises LockNotAcquired."""
        if not await self.acquire():
            raise not_acquired(self)
        self._body, self._cancelled = asyncio.current_task(), False
        self._cancelling = self._body.cancelling() if self._body else 0
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        body, self._body = self._body, None
        if self._cancelled and body is not None:
            ours = body.uncancel() <= self._cancelling
            if ours and kind is asyncio.CancelledError:
                with suppress(errors.LostLock):
                    await self.release()
                raise self._lost_error() from error
        try:
            await self.release()
        except errors.LostLock:
            if kind is None:
                raise


def _check_options(scope: str, on: Any, timeout: float | None, job: UUID | None) -> None:
    """Raise ConfigError for invalid options, or for options that exclude each other."""
    if scope not in get_args(Scope):
        do = errors.suggest(str(scope), get_args(Scope))
        raise errors.ConfigError("scope must be 'transaction' or 'session'", got=scope, do=do)
    if on is not None and scope == "session":
        raise errors.ConfigError(
            'scope="session" cannot be used with on=, because your pool would release the lock or '
            "hand its connection to another user",
            do='Leave out on=, or use scope="transaction"',
        )
    if timeout is not None and not (is_number(timeout, 0, LONGEST_WAIT_SECONDS) and timeout):
        raise errors.ConfigError(
            "timeout must be more than 0 seconds and at most a day",
            got=timeout,
            do="Leave it out to try once",
        )
    if job is not None and not isinstance(job, UUID):
        raise errors.ConfigError("job must be a job's id", got=job, do="Pass ctx.job_id")


async def note_name(app: Home, key: LockKey) -> None:
    """Store the name of the key, on one of leasework's connections. In the user's transaction it
    would be invisible until the commit, and other processes would wait for it."""
    noted = key.noted
    if noted is None:
        return
    known, now = app.noted_locks, app.env.boot_now()
    if now - known.get(noted, -Tuning.noted_seconds) < Tuning.noted_seconds:
        return
    name = await (await app.store()).note_lock(noted.kind, noted.key, noted.name, app.env.due_now())
    if name != noted.name:
        raise errors.ConfigError(
            f"the lock names {noted.name!r} and {name!r} have the same key", do="Rename one of them"
        )
    if len(known) >= Tuning.noted_locks:
        known.clear()
    known[noted] = now


async def _record(app: Home, kind: str, fields: dict[str, Any]) -> None:
    """Emit an event that belongs to no node."""
    env = app.env
    event = telemetry.make_event(kind, fields, env.boot_now())
    worker_id = f"{env.host}:{env.pid}:-"
    telemetry.log(event, worker_id)
    with suppress(errors.LeaseworkError):  # the log has the event
        await (await app.store()).record([as_row(event, worker_id)], env.due_now())


def not_acquired(lock: Any) -> errors.LockNotAcquired:
    waited = "" if lock.timeout is None else f" for {lock.timeout:g} s"
    return errors.LockNotAcquired(
        f"another session holds the advisory lock {lock.key.label}{waited}",
        do="Run leasework locks to see its holder, or set timeout=seconds to wait",
    )


def _does_nothing() -> errors.UnsafeServer:
    return errors.UnsafeServer(
        "this server reported that it took the advisory lock, but pg_locks does not show it: its "
        "advisory lock functions do nothing",
        do="Use app.lock(...), which needs only rows",
    )
