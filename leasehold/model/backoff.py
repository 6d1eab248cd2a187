"""How long to wait before the next attempt."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.errors import BadJob


@dataclass(frozen=True)
class Backoff:
    """Exponential: ``base * factor ** (failures - 1)`` seconds, at most ``longest``, plus or
    minus ``jitter`` of it, so that jobs which failed together do not come back together."""

    base: float = 2.0
    factor: float = 2.0
    longest: float = 3600.0
    jitter: float = 0.25

    def __post_init__(self) -> None:
        if not (self.base >= 0 and self.factor >= 1 and self.longest >= self.base):
            raise BadJob(
                "a backoff needs base >= 0, factor >= 1 and longest >= base",
                got=f"base={self.base} factor={self.factor} longest={self.longest}",
            )
        if not 0 <= self.jitter <= 1:
            raise BadJob("a backoff's jitter is a share between 0 and 1", got=self.jitter)

    def seconds(self, failures: int, draw: float) -> float:
        """``failures`` so far, from 1; ``draw`` is a random number in [0, 1)."""
        power = min(max(failures, 1) - 1, 64)
        delay = min(self.base * self.factor**power, self.longest)
        return delay * (1 + self.jitter * (2 * draw - 1))
