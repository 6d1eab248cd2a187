"""Types that all parts of the Store use: the time and a term."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

Now = datetime | None


class Term(NamedTuple):
    """A leadership of this process, which its duties name."""

    leader: str
    token: int
