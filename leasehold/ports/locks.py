"""Advisory locks: their names, who holds them and who waits for them.

The locks themselves are taken on other connections (:mod:`leasehold.pg.users.advisory`) or on the
user's, which a Store does not have.
"""

from __future__ import annotations

from leasehold.ports.common import Now
from leasehold.ports.operation import Operations, operation
from leasehold.ports.rows import LockView


class LockStore(Operations):
    async def note_lock(self, kind: str, key: int, name: str, now: Now) -> str:
        """Record a key's name, and return the recorded one, which differs if two names have the
        same key. ``kind``: ``key`` or ``class``."""

    @operation("lock/list")
    async def locks(self, limit: int) -> list[LockView]:
        """Return leases and advisory locks, held and waited for."""
