"""Advisory locks: what they are called, and who holds and awaits them.

The locks themselves are taken on connections of their own (:mod:`leasehold.pg.advisory`) or of
the user's, which a Store does not have.
"""

from __future__ import annotations

from typing import Protocol

from leasehold.ports.common import Now, Rows


class LockStore(Protocol):
    async def note_lock(self, kind: str, key: int, name: str, now: Now) -> str:
        """Remember what a key is called; the name that is remembered, which is another's when two
        names have the same key. ``kind``: ``key`` or ``class``."""

    async def locks(self, limit: int) -> Rows:
        """Leases and advisory locks, held and waited for."""
