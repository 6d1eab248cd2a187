"""What every part of the Store speaks of: the time, rows for people, a term."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

Now = datetime | None
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Term:
    """A leadership of this process, as a duty names it."""

    leader: str
    token: int
