"""Which moments may be stored: those that every session can read, whatever its time zone."""

from __future__ import annotations

from datetime import UTC, datetime

EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 12, 31, tzinfo=UTC)


def storable_moment(moment: datetime) -> bool:
    """In the first year and in the last one, a driver cannot read what another time zone shows."""
    return EARLIEST <= moment <= LATEST
