"""A simulated process's clocks, which run at different rates, and its ids and random numbers, which
depend only on the seed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from leasework.env import Clock, Env, Rng
from leasework_lab.sim.loop import VirtualLoop

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
_START_SECONDS = START.timestamp()


class SimClock(Clock):
    """Runs ``rate`` times as fast as true time, starting at ``offset`` seconds."""

    def __init__(self, loop: VirtualLoop, rate: float, offset: float) -> None:
        self._loop = loop
        self._rate = rate
        self._offset = offset

    def boot_now(self) -> float:
        return self._offset + self._rate * self._loop.now

    def wall_now(self) -> datetime:
        return START + timedelta(seconds=self._loop.now)

    def wall_nanos(self) -> int:
        return int(self.wall_now().timestamp() * 1000) * 1_000_000


def sim_env(clock: SimClock, rng: Rng, host: str, pid: int) -> Env:
    """``due_now`` stays None: as in production, the database uses its own clock when a request
    arrives, however long the request was on its way."""
    return Env(clock, rng, host, pid, rng.randbytes)


class DatabaseClock:
    """The database's wall clock, which may step."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._stepped = 0.0
        self._asked_at = -1.0
        self._answer = START

    def __call__(self) -> datetime:
        at = self._loop.now + self._stepped
        if at != self._asked_at:
            self._asked_at = at
            self._answer = datetime.fromtimestamp(_START_SECONDS + at, UTC)
        return self._answer

    def step(self, seconds: float) -> None:
        self._stepped += seconds

    @property
    def stepped(self) -> float:
        """How far it differs from true time, in seconds."""
        return self._stepped
