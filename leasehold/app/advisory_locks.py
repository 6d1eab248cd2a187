"""The part of :class:`leasehold.App` for advisory locks."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

from leasehold import errors, telemetry
from leasehold.app.advisory import AdvisoryLock
from leasehold.model.lock_key import LockKey, lock_key

LONGEST_WAIT_SECONDS = 86400.0


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
