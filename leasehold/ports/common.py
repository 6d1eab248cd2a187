"""Types that all parts of the Store use: the time, rows for people, a term."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

Now = datetime | None
Rows = list[dict[str, Any]]


class Term(NamedTuple):
    """A leadership of this process, which its duties name."""

    leader: str
    token: int
