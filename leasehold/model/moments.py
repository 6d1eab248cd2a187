"""The moments that may be stored: those that a session in any time zone can read."""

from __future__ import annotations

from datetime import UTC, datetime

EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 12, 31, tzinfo=UTC)


def storable_moment(moment: datetime) -> bool:
    """Return whether drivers can read the moment in every time zone."""
    return EARLIEST <= moment <= LATEST
