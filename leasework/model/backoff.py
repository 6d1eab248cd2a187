"""The wait before the next attempt of a failed job."""

from __future__ import annotations

from dataclasses import dataclass

from leasework.errors import BadJob
from leasework.model.moments import Duration, in_seconds, is_number

_LONGEST = 366 * 86400.0


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff: ``base * factor ** (failures - 1)`` seconds, at most ``longest``, plus
    or minus the share ``jitter``, so that jobs that failed together do not return together.
    ``base`` and ``longest`` may be timedeltas. Raises BadJob for a value out of range."""

    base: Duration = 2.0
    factor: float = 2.0
    longest: Duration = 3600.0
    jitter: float = 0.25

    def __post_init__(self) -> None:
        for label in ("base", "longest"):
            object.__setattr__(self, label, in_seconds(getattr(self, label)))
        limits = {
            "base": (0, _LONGEST),
            "factor": (1, 100),
            "longest": (in_seconds(self.base), _LONGEST),
            "jitter": (0, 1),
        }
        for label, (low, high) in limits.items():
            value = getattr(self, label)
            if not is_number(value, low, high):
                raise BadJob(
                    f"a backoff's {label} must be a number from {low:g} to {high:g}", got=value
                )

    def seconds(self, failures: int, draw: float) -> float:
        """Return the wait in seconds. ``failures`` counts from 1; ``draw`` is random, in [0, 1)."""
        base, longest = in_seconds(self.base), in_seconds(self.longest)
        try:
            delay: float = min(base * float(self.factor) ** (max(failures, 1) - 1), longest)
        except OverflowError:
            delay = longest if base else 0.0
        return delay * (1 + self.jitter * (2 * draw - 1))
