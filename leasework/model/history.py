"""Durations as counts per class. Unlike percentiles, these can be added over minutes and tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

WIDTH = 1.2
"""Each class is a fifth wider than the one before, so a percentile is accurate to about 10 %."""
_FIRST_SECONDS = 0.001

Counts = dict[int, int]


def class_seconds(number: int) -> float:
    """The middle of a class, in seconds. Class 0 is below 1.2 ms."""
    return float(_FIRST_SECONDS * WIDTH ** (number + 0.5))


def class_bound(number: int) -> float:
    """The upper bound of a class, in seconds."""
    return float(_FIRST_SECONDS * WIDTH ** (number + 1))


def added(parts: Iterable[Mapping[str, int] | Counts]) -> Counts:
    """Add the counts per class of several rows, whose keys may be text, as in JSON."""
    total: Counts = {}
    for part in parts:
        for number, count in part.items():
            total[int(number)] = total.get(int(number), 0) + count
    return total


def percentile(counts: Counts, share: float) -> float | None:
    """The duration in seconds that the share (0 to 1) does not exceed; None without any counts."""
    whole = sum(counts.values())
    wanted, seen = whole * share, 0
    for number in sorted(counts):
        seen += counts[number]
        if seen >= wanted and seen:
            return class_seconds(number)
    return None
