"""An asynchronous failover: the standby that takes over lacks the last commits.

The tables go back to an earlier moment, under a new timeline, and so does what the watch concluded
from the lost commits. Tokens and beliefs do not go back: a process may have seen the tokens and may
act on the beliefs.
"""

from __future__ import annotations

from copy import copy
from typing import Any
from uuid import UUID

from leasework_lab.sim.checkers import Watch
from leasework_lab.sim.rows import SimDatabase

_TABLES = (
    "nodes", "claimed_to", "deaths", "leaders", "fences", "terms", "releases", "jobs",
    "done", "attempts", "keys", "repeated", "signals", "schedules", "ticks", "deadlines", "history",
    "lock_names",
)  # fmt: skip
_LISTS = ("bids", "events")
_NUMBERS = ("sequence", "seats", "xids", "last_event")


class Standby:
    """The state of a standby at the moment when this object is created."""

    def __init__(self, db: SimDatabase, watch: Watch) -> None:
        self._db = db
        self._watch = watch
        self._kept: dict[str, Any] = {
            **{name: _rows(getattr(db, name)) for name in _TABLES},
            **{name: list(getattr(db, name)) for name in _LISTS},
            **{name: getattr(db, name) for name in _NUMBERS},
        }
        self._memory = watch.remember()

    def take_over(self) -> set[UUID]:
        """Continue from this state. Returns the lost jobs."""
        db = self._db
        before = db.jobs.keys() | db.done.keys()
        for name, value in self._kept.items():
            setattr(db, name, value)
        db.promote()
        lost = before - db.jobs.keys() - db.done.keys()
        self._watch.goes_back(self._memory, lost)
        return lost


def _rows(table: dict[Any, Any]) -> dict[Any, Any]:
    """Copies of the rows. Rows change in place; the values in them do not."""
    plain = (int, str, UUID, tuple)
    return {key: row if isinstance(row, plain) else copy(row) for key, row in table.items()}
