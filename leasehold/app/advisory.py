"""PostgreSQL's advisory locks, done right: ``app.advisory_lock(...)``.

The database is the source of truth. A lock on a connection of ours is verified about once a
second; what was not confirmed for three seconds is not held.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from leasehold import errors, telemetry
from leasehold.model.lock_key import LockKey, lock_key
from leasehold.pg.advisory import LockSession
from leasehold.pg.user_lock import lock_on

if TYPE_CHECKING:
    from leasehold.app.core import App

VERIFY_SECONDS = 1.0
"""Between two questions to pg_locks."""
TRUST_SECONDS = 2.5
"""A lock counts as held for so long after the question that the database last said yes to."""
LONGEST_WAIT_SECONDS = 86400.0


class AdvisoryLock:
    """One acquisition at a time: ``async with``, or :meth:`acquire` and :meth:`release`."""

    def __init__(
        self,
        app: App,
        key: LockKey,
        *,
        scope: str,
        shared: bool,
        on: Any,
        timeout: float | None,
        job: UUID | None,
        cancel: bool,
    ) -> None:
        self._app = app
        self.key = key
        self.scope = scope
        self.shared = shared
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
        await self._app._note_lock(self.key)
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
            check=not app._locks_work,
        )
        if got and not shown:
            raise _does_nothing()
        app._locks_work = app._locks_work or got
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
        self._telling = asyncio.create_task(self._tell(why))
        for callback in self._heard:
            callback(why)
        if self._body is not None and self._cancel and self._body is not asyncio.current_task():
            self._cancelled = True
            self._body.cancel("the advisory lock was lost")

    async def _tell(self, why: str) -> None:
        """The event, in the log at once and in the table if the database can be reached."""
        fields = {"name": self.key.label, "scope": self.scope, "why": why}
        await self._app._record("lock_lost", fields)

    # -- giving up -------------------------------------------------------------------------------
    async def release(self) -> None:
        """Raises LostLock when the database says that it was not ours any more. Nothing with
        ``on=``: the transaction's end releases."""
        session, self._session = self._session, None
        if session is None or self._process != os.getpid():
            return  # after a fork it is the parent's
        if self._watch:
            self._watch.cancel()
        try:
            if self.lost.is_set():
                raise self._lost_error()
            async with self._one:
                await self._release(session)
        except asyncio.CancelledError:
            session.shut()
            raise
        finally:
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


class AdvisoryLocks:
    """The part of :class:`App` for advisory locks."""

    _locks_work: bool = False
    """The server of the users' connections was seen to hold what it says that it holds."""

    def advisory_lock(
        self,
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
    ) -> AdvisoryLock:
        """An advisory lock of PostgreSQL by a name, a 64-bit number or a (class, object) pair.

        It tries; with ``timeout`` (seconds) it waits. ``scope="transaction"``: with ``on=`` in
        your own transaction until its end; else in one that a connection of leasehold's holds
        open. ``scope="session"``: on a connection of its own, refused behind a pooler.
        ``shared``: any number of shared holders, or one that is not. ``namespace`` goes before
        names; ``wide=True`` allows objects beyond 2**31. ``job``: shown by ``leasehold locks``.
        When the lock is lost, the body of ``async with`` is cancelled and LostLock raised at its
        end; with ``cancel=False`` only ``lock.lost`` is set. Raises ConfigError.
        """
        options = checked_options(self, target, scope, shared, on, timeout, namespace, wide, job)
        return AdvisoryLock(**options, cancel=cancel)

    async def _note_lock(self: Any, key: LockKey) -> None:
        """Have the key's name remembered, on a connection of ours: in the user's transaction
        nobody could read it before the commit, and all others would wait for it."""
        noted = key.noted
        if noted is None:
            return
        known, now = self._noted_locks, self.env.boot_now()
        if now - known.get(noted, -_NOTED_SECONDS) < _NOTED_SECONDS:
            return
        name = await (await self.store()).note_lock(
            noted.kind, noted.key, noted.name, self.env.due_now()
        )
        if name != noted.name:
            raise errors.ConfigError(
                f"the names {noted.name!r} and {name!r} have the same key", do="Rename one of them"
            )
        if len(known) >= _MOST_NOTED:
            known.clear()
        known[noted] = now

    async def _record(self: Any, kind: str, fields: dict[str, Any]) -> None:
        """An event from outside of a node."""
        env = self.env
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
            await (await self.store()).record([row], env.due_now())


_NOTED_SECONDS = 12 * 3600.0
_MOST_NOTED = 10_000


def checked_options(
    app: Any,
    target: Any,
    scope: str,
    shared: bool,
    on: Any,
    timeout: float | None,
    namespace: str,
    wide: bool,
    job: UUID | None,
) -> dict[str, Any]:
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
    key = lock_key(target, namespace=namespace, wide=wide)
    return {
        "app": app,
        "key": key,
        "scope": scope,
        "shared": bool(shared),
        "on": on,
        "timeout": timeout,
        "job": job,
    }
