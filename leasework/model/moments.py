"""Moments that can be stored, lengths of time, and what happened over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from leasework.errors import ConfigError

Duration = float | timedelta
"""A length of time: a number of seconds, or a timedelta."""

EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 12, 31, tzinfo=UTC)


def is_number(value: object, low: float, high: float, *, whole: bool = False) -> bool:
    """Return whether it is a number from ``low`` to ``high``. True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        return False
    return low <= value <= high


def storable_moment(moment: datetime) -> bool:
    """Return whether drivers can read the moment in every time zone."""
    return EARLIEST <= moment <= LATEST


def in_seconds(length: Any) -> Any:
    """Return a timedelta as seconds, and anything else as it is, for the check that follows."""
    return length.total_seconds() if isinstance(length, timedelta) else length


def duration(seconds: float) -> str:
    """``0.4 s``, ``42 s``, ``3 min 5 s``, ``2 h 7 min``, ``3 d 4 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    if whole >= 60:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole} s"


def sparkline(counts: Sequence[int]) -> str:
    """A bar for each count, as text."""
    top = max(counts, default=0) or 1
    return "".join("·▁▂▃▄▅▆▇█"[-(-8 * count // top)] for count in counts)


def rate_text(per_second: float) -> str:
    """A rate in the first unit in which it is 1 or more: ``10/s``, ``12/h``."""
    units = {"s": 1, "min": 60, "h": 3600, "day": 86400}
    texts = {unit: f"{per_second * seconds:g}" for unit, seconds in units.items()}
    unit = next((unit for unit, text in texts.items() if float(text) >= 1), "day")
    return f"{texts[unit]}/{unit}"


def checked_timeout(timeout: Duration | None) -> float | None:
    """Return the timeout in seconds. Raises ConfigError."""
    seconds: float | None = in_seconds(timeout)
    if seconds is not None and not is_number(seconds, 0, 1e9):
        rule = "seconds from 0 to 1e9, a timedelta, or None to wait"
        raise ConfigError(f"timeout must be {rule}", got=timeout)
    return seconds
