"""A connection that holds one advisory lock and does nothing else. It never returns to a pool,
whose reset would release the lock."""

from __future__ import annotations

from leasework.config import Settings
from leasework.errors import UnsafeServer
from leasework.model.lock_key import LockKey
from leasework.pg.connection.pool import check_schema
from leasework.pg.connection.session import Session
from leasework.tuning import Tuning


class LockSession:
    """Call ``lock``, then ``holds`` from time to time, then ``release``. Always call ``close``."""

    def __init__(
        self, session: Session, key: LockKey, shared: bool, whole_session: bool, nonce: str
    ) -> None:
        self._session = session
        self._whole_session = whole_session
        self._nonce = nonce
        self._lock = {**key.params, "shared": shared, "session": whole_session}
        self.pid = session.facts.backend_pid
        """The server process's pid, as in pg_locks. A pooler gives the transaction another one than
        the statements before it."""

    @classmethod
    async def open(
        cls,
        settings: Settings,
        key: LockKey,
        *,
        shared: bool,
        whole_session: bool,
        job: str | None,
        nonce: str,
        wait: float | None,
    ) -> LockSession:
        """``whole_session`` False: the lock belongs to a transaction that stays open. ``wait``: in
        seconds. Raises UnsafeServer if a pooler would break a session's lock."""
        session = await Session.open(settings, f"lock {job}" if job else "lock")
        made = cls(session, key, shared, whole_session, nonce)
        try:
            await made._prepare(settings.call_timeout, wait)
        except BaseException:
            await made.close()
            raise
        return made

    async def _prepare(self, call_timeout: float, wait: float | None) -> None:
        session, facts = self._session, self._session.facts
        check_schema(facts.schema_number, facts.schema_min_known)
        if self._whole_session and facts.pooled:
            told = session.connection.info.backend_pid
            raise UnsafeServer(
                "the connection is through a pooler, which would keep the session's lock on one of "
                "its connections, for the next client",
                got=f"server process {self.pid}, the connection was told {told}",
                do='Use scope="transaction", or app.lock(...), or the DSN of the server itself',
            )
        if not self._whole_session:
            async with session.guarded(call_timeout):
                await session.connection.execute("begin")
        params = {
            "nonce": self._nonce,
            "statement_ms": str(round((call_timeout + (wait or 0.0)) * 1000)),
            "local": not self._whole_session,
        }
        rows = await session.fetch("lock/prepare", params, call_timeout)
        self.pid = int(rows[0][0])

    async def lock(self, wait: float | None, call_timeout: float) -> bool:
        """Try once (``wait`` None), or wait at most ``wait`` seconds. Return whether this session
        holds the lock."""
        wait_ms = None if wait is None else max(1, round(wait * 1000))
        params = {**self._lock, "wait_ms": wait_ms}
        seconds = call_timeout if wait is None else wait + Tuning.wait_margin_seconds
        rows = await self._session.fetch("lock/acquire", params, seconds)
        return bool(rows[0][0])

    async def holds(self, timeout: float) -> bool:
        """Return whether the database shows that this session holds the lock now."""
        params = {**self._lock, "pid": self.pid, "nonce": self._nonce}
        rows = await self._session.fetch("lock/holds", params, timeout)
        return bool(rows[0][0])

    async def release(self, timeout: float) -> bool:
        """Release the lock. Return False if this session did not hold it."""
        if self._whole_session:
            rows = await self._session.fetch("lock/release", self._lock, timeout)
            return bool(rows[0][0])
        if not await self.holds(timeout):
            return False
        async with self._session.guarded(timeout):
            await self._session.connection.execute("commit")
        return True

    def shut(self) -> None:
        """Close the socket. The server then releases the lock."""
        self._session.shut()

    async def close(self) -> None:
        await self._session.close()
