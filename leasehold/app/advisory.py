"""``app.advisory_lock(...)``: PostgreSQL's advisory locks.

The database is the source of truth. leasehold verifies a lock on a connection of its own about once
a second. A lock that was not confirmed for 2.5 seconds counts as not held.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any
from uuid import UUID

from leasehold import errors, telemetry
from leasehold.app.home import Home
from leasehold.model.lock_key import LockKey, lock_key
from leasehold.pg.users.advisory import LockSession
from leasehold.pg.users.user_lock import lock_on

VERIFY_SECONDS = 1.0
"""Between two questions to pg_locks."""
LONGEST_WAIT_SECONDS = 86400.0
_NOTED_SECONDS = 12 * 3600.0
_MOST_NOTED = 10_000
TRUST_SECONDS = 2.5
"""A lock counts as held for so long after the question that the database last said yes to."""


class AdvisoryLock:
    """One acquisition at a time: ``async with``, or :meth:`acquire` and :meth:`release`."""

    def __init__(
        self,
        app: Home,
        target: str | int | tuple[str | int, int],
        *,
        scope: str = "transaction",
        shared: bool = False,
        on: Any = None,
        timeout: float | None = None,
        namespace: str = "",
        wide: bool = False,
        job: UUID | None = None,
        cancel: bool = True,
    ) -> None:
        _check_options(scope, on, timeout, job)
        self._app = app
        self.key = lock_key(target, namespace=namespace, wide=wide)
        self.scope = scope
        self.shared = bool(shared)
        self.timeout = timeout
        self.lost = asyncio.Event()
        """Set once when the database does not show the lock any more, or does not answer."""
        self.why_lost: str | None = None
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

    # -- what is true ----------------------------------------------------------------------------
    @property
    def held(self) -> bool:
        """The database said so less than 2.5 seconds ago, and it was this process that asked.
        Always False with ``on=``, where the transaction knows."""
        return (
            self._session is not None
            and not self.lost.is_set()
            and self._process == os.getpid()
            and self._app.env.boot_now() - self._confirmed_at < TRUST_SECONDS
        )

    @property
    def pid(self) -> int | None:
        """The server's process that holds it, as ``pg_locks`` and ``leasehold locks`` name it."""
        return self._session.pid if self._session else None

    async def verify(self) -> None:
        """Ask the database now. Raises LostLock."""
        session = self._session
        if session is None or self.lost.is_set():
            raise self._lost_error()
        if not await self._confirm(session):
            raise self._lost_error()

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """Call it with the reason, in the loop, when the lock is lost."""
        self._heard.append(callback)

    # -- taking ----------------------------------------------------------------------------------
    async def acquire(self) -> bool:
        """Try; with a ``timeout``, wait. Whether it is ours.

        Raises UnsafeServer where such a lock would be none (a pooler, an engine whose functions
        do nothing), Unavailable, Conflict (a deadlock), and with ``on=`` WrongConnection.
        """
        if self._session is not None:
            raise errors.ConfigError(
                "this lock was acquired already", got=self.key.label, do="Release it first"
            )
        await note_name(self._app, self.key)
        if self.on is not None:
            return await self.acquire_on()
        opening = asyncio.ensure_future(self._open())
        try:
            session = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.cancel()
            with suppress(asyncio.CancelledError, errors.LeaseholdError):
                if left := await opening:
                    await left.close()
            raise
        if session is None:
            return False
        self.lost.clear()
        self.why_lost = None
        self._session, self._process = session, os.getpid()
        self._watch = asyncio.create_task(self._watching(session), name="leasehold-lock")
        return True

    async def acquire_on(self) -> bool:
        """The part of :meth:`acquire` that runs on the user's connection."""
        app = self._app
        got, shown = await lock_on(
            app.on_connection,
            self.on,
            self.key,
            shared=self.shared,
            wait=self.timeout,
            check=not app.locks_work,
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

    # -- holding ---------------------------------------------------------------------------------
    async def _watching(self, session: LockSession) -> None:
        env = self._app.env
        while True:
            await asyncio.sleep(max(0.0, self._confirmed_at + VERIFY_SECONDS - env.boot_now()))
            if not await self._confirm(session):
                return

    async def _confirm(self, session: LockSession) -> bool:
        """Ask, for as long as the last answer is still good; otherwise it is lost."""
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
            except errors.LeaseholdError as error:
                why = str(error)
            self._lose(session, why)
            return False

    def _lose(self, session: LockSession, why: str) -> None:
        self.why_lost = why
        self.lost.set()
        session.shut()  # should the server still hold it for us: not any more
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
        """The events, in the log at once and in the table if the database can be reached."""
        name = self.key.label
        await _record(self._app, "lock_lost", {"name": name, "scope": self.scope, "why": why})
        for error in failed:
            await _record(self._app, "callback_failed", {"name": name, "error": error})

    # -- giving up -------------------------------------------------------------------------------
    async def release(self) -> None:
        """Raises LostLock when the database says that it was not ours any more. Nothing with
        ``on=``: the transaction's end releases."""
        session, self._session = self._session, None
        if session is None or self._process != os.getpid():
            return  # after a fork it is the parent's
        watch, self._watch = self._watch, None
        try:
            async with self._one:
                # Not while it asks: the driver would have the server cancel that statement, and
                # a transaction's lock ends with its transaction.
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
        why = "it was not ours any more at the release"
        try:
            if await session.release(self._app.settings.call_timeout):
                return
        except errors.LeaseholdError as error:
            why = str(error)
        self._lose(session, why)
        raise self._lost_error()

    def _lost_error(self) -> errors.LostLock:
        return errors.LostLock(
            f"the advisory lock {self.key.label} is not ours any more",
            got=self.why_lost or "it was never acquired, or released",
            do="Somebody else may hold it: stop, and undo what is not committed",
        )

    async def __aenter__(self) -> AdvisoryLock:
        """Raises LockNotAcquired."""
        if not await self.acquire():
            raise not_acquired(self)
        self._body, self._cancelled = asyncio.current_task(), False
        self._cancelling = self._body.cancelling() if self._body else 0
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
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
    """Raises ConfigError for what does not fit together."""
    if scope not in ("transaction", "session"):
        raise errors.ConfigError("scope must be 'transaction' or 'session'", got=scope)
    if on is not None and scope == "session":
        raise errors.ConfigError(
            "a lock of the session does not go with on=: your pool would release it, or give it "
            "to somebody else",
            do='Leave on= out, or use scope="transaction"',
        )
    if timeout is not None and (
        isinstance(timeout, bool)
        or not isinstance(timeout, (int, float))
        or not 0 < timeout <= LONGEST_WAIT_SECONDS
    ):
        raise errors.ConfigError(
            "timeout must be seconds, more than 0 and at most a day",
            got=timeout,
            do="Leave it out to try",
        )
    if job is not None and not isinstance(job, UUID):
        raise errors.ConfigError("job must be a job's id", got=job, do="Pass ctx.job_id")


async def note_name(app: Home, key: LockKey) -> None:
    """Store the name of the key, on a connection of ours: in the user's transaction nobody could
    read it before the commit, and all others would wait for it."""
    noted = key.noted
    if noted is None:
        return
    known, now = app.noted_locks, app.env.boot_now()
    if now - known.get(noted, -_NOTED_SECONDS) < _NOTED_SECONDS:
        return
    name = await (await app.store()).note_lock(noted.kind, noted.key, noted.name, app.env.due_now())
    if name != noted.name:
        raise errors.ConfigError(
            f"the names {noted.name!r} and {name!r} have the same key", do="Rename one of them"
        )
    if len(known) >= _MOST_NOTED:
        known.clear()
    known[noted] = now


async def _record(app: Home, kind: str, fields: dict[str, Any]) -> None:
    """An event from outside of a node."""
    env = app.env
    event = telemetry.make_event(kind, fields, env.boot_now())
    worker_id = f"{env.host}:{env.pid}:-"
    telemetry.log(event, worker_id)
    row = {
        "age": 0.0,
        "kind": event.kind,
        "level": event.level,
        "node": None,
        "worker_id": worker_id,
        "fields": event.fields,
    }
    with suppress(errors.LeaseholdError):  # its log line was written
        await (await app.store()).record([row], env.due_now())


def not_acquired(lock: Any) -> errors.LockNotAcquired:
    waited = "" if lock.timeout is None else f" for {lock.timeout:g} s"
    return errors.LockNotAcquired(
        f"somebody else holds the advisory lock {lock.key.label}{waited}",
        do="See who: leasehold locks. To wait: timeout=seconds",
    )


def _does_nothing() -> errors.UnsafeServer:
    return errors.UnsafeServer(
        "this server says that it took the advisory lock, and pg_locks does not show it: its "
        "functions for advisory locks do nothing",
        do="Use app.lock(...), which needs rows only",
    )
