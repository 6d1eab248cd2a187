"""Advisory locks: what they are called, and who holds and awaits them.

The locks themselves are taken on connections of their own (:mod:`leasehold.pg.users.advisory`) or
of the user's, which a Store does not have.
"""

from __future__ import annotations

from leasehold.ports.common import Now, Rows
from leasehold.ports.operation import Operations, named, operation


class LockStore(Operations):
    async def note_lock(self, kind: str, key: int, name: str, now: Now) -> str:
        """Remember what a key is called; the name that is remembered, which is another's when two
        names have the same key. ``kind``: ``key`` or ``class``."""

    @operation(
        "lock/list",
        answer=named(
            "locktype classid objid objsubid lock_key name pid mode granted waitstart state "
            "query job_id client since application_name token"
        ),
    )
    async def locks(self, limit: int) -> Rows:
        """Leases and advisory locks, held and waited for."""
