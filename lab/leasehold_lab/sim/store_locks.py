"""Store operations on locks, in memory: names and leases. The simulation has no advisory locks,
because they are not part of the protocol."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from leasehold.config import LOCK_PREFIX
from leasehold.ports import LockStore, Now, Rows
from leasehold_lab.sim.rows import SimDatabase

_KEPT = timedelta(days=30)
_OF_ADVISORY_LOCKS = (
    "classid objid objsubid lock_key pid waitstart state query job_id application_name"
)


class SimLocks(LockStore):
    db: SimDatabase

    async def note_lock(self, kind: str, key: int, name: str, now: Now) -> str:
        names, moment = self.db.lock_names, self.db.at(now)
        noted, _ = names.get((kind, key), (name, moment))
        for other, (_, used_at) in list(names.items()):
            if moment - used_at > _KEPT and other != (kind, key):
                del names[other]
        names[kind, key] = (noted, moment)
        return noted

    async def locks(self, limit: int) -> Rows:
        rows: Rows = [
            {
                **_lease(name),
                "granted": True,
                "client": self.db.worker_id(row.node),
                "since": row.acquired_at,
                "token": row.token,
            }
            for name, row in sorted(self.db.leaders.items())
            if row.node is not None
        ]
        for name, node in self.db.bids:
            row = {
                "granted": False,
                "client": self.db.worker_id(node),
                "since": None,
                "token": None,
            }
            rows.append({**_lease(name), **row})
        return rows[:limit]


def _lease(name: str) -> dict[str, Any]:
    return {
        **dict.fromkeys(_OF_ADVISORY_LOCKS.split()),
        "locktype": "lease",
        "name": name.removeprefix(LOCK_PREFIX),
        "mode": "lock" if name.startswith(LOCK_PREFIX) else "leader",
    }
