"""Moments that can be stored, and lengths of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from leasehold.errors import ConfigError

Duration = float | timedelta
"""A length of time: a number of seconds, or a timedelta."""

EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 12, 31, tzinfo=UTC)


def storable_moment(moment: datetime) -> bool:
    """Return whether drivers can read the moment in every time zone."""
    return EARLIEST <= moment <= LATEST


def in_seconds(length: Any) -> Any:
    """Return a timedelta as seconds, and anything else as it is, for the check that follows."""
    return length.total_seconds() if isinstance(length, timedelta) else length


def checked_timeout(timeout: Duration | None) -> float | None:
    """Return the timeout in seconds. Raises ConfigError."""
    seconds: Any = in_seconds(timeout)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float | None):
        raise ConfigError("timeout must be seconds, a timedelta, or None to wait", got=timeout)
    if seconds is not None and not 0 <= seconds < 1e9:
        raise ConfigError("timeout must be 0 to 1e9 seconds, or None to wait", got=timeout)
    return seconds
