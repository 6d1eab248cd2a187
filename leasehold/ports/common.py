"""What every part of the Store speaks of: the time, rows for people, a term."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

Now = datetime | None
Rows = list[dict[str, Any]]


class Term(NamedTuple):
    """A leadership of this process, as a duty names it."""

    leader: str
    token: int
