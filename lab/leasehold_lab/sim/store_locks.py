"""Store operations on locks, in memory: names and leases. The simulation has no advisory locks,
because they are not part of the protocol."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from leasehold.config import LOCK_PREFIX
from leasehold.ports import LockView, Now
from leasehold.ports.operator import OperatorStore
from leasehold_lab.sim.rows import SimDatabase

_KEPT = timedelta(days=30)


class SimLocks(OperatorStore):
    db: SimDatabase

    async def note_lock(self, kind: str, key: int, name: str, now: Now) -> str:
        names, moment = self.db.lock_names, self.db.at(now)
        noted, _ = names.get((kind, key), (name, moment))
        for other, (_, used_at) in list(names.items()):
            if moment - used_at > _KEPT and other != (kind, key):
                del names[other]
        names[kind, key] = (noted, moment)
        return noted

    async def locks(self, limit: int) -> list[LockView]:
        db = self.db
        held = [
            _lease(name)._replace(
                client=db.worker_id(row.node), since=row.acquired_at, token=row.token
            )
            for name, row in sorted(db.leaders.items())
            if row.node is not None
        ]
        waiting = [
            _lease(name)._replace(granted=False, client=db.worker_id(node))
            for name, node in db.bids
        ]
        return [*held, *waiting][:limit]


def _lease(name: str) -> LockView:
    given: dict[str, Any] = dict.fromkeys(LockView._fields)
    mode = "lock" if name.startswith(LOCK_PREFIX) else "leader"
    given |= {"locktype": "lease", "name": name.removeprefix(LOCK_PREFIX), "mode": mode}
    return LockView(**given | {"granted": True})
