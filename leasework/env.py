"""The only place that reads clocks, random numbers and the host's name, and makes ids. Everything
else gets an :class:`Env`; the simulation passes its own."""

from __future__ import annotations

import asyncio
import getpass
import os
import random
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from uuid import UUID, SafeUUID

# CLOCK_BOOTTIME continues while the machine sleeps; CLOCK_MONOTONIC does not. A lease must expire
# during sleep. If the kernel lacks CLOCK_BOOTTIME, we use the other. Windows has neither, but its
# monotonic clock continues during sleep.
_boot_now: Callable[[], float] = time.monotonic
if hasattr(time, "clock_gettime"):
    _boot_now = partial(
        time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", None) or time.CLOCK_MONOTONIC
    )


# psycopg needs a loop that watches sockets, which the default loop of Windows cannot do
LOOP_FACTORY = asyncio.SelectorEventLoop if sys.platform == "win32" else None
"""The loop for asyncio.Runner in our own threads. None: the default loop."""

Rng = random.Random


def seeded(seed: int | str) -> Rng:
    """Return random numbers that the same seed repeats. Only for simulations."""
    return random.Random(seed)


class Clock:
    """The clocks of a process. ``boot_now`` (seconds, of which only differences have a meaning)
    decides who is alive. ``wall_now`` (UTC) is for people and ids, and decides nothing."""

    boot_now = staticmethod(_boot_now)

    def wall_now(self) -> datetime:
        return datetime.now(UTC)

    wall_nanos = staticmethod(time.time_ns)
    """``wall_now`` in nanoseconds since 1970, for ids."""


class Ids:
    """Makes UUIDv7: the first 48 bits are milliseconds, so that index inserts stay close together,
    and the ids of one process grow."""

    def __init__(self, clock: Clock, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._clock = clock
        self._random_bytes = random_bytes
        self._last = 0
        """The last id's milliseconds, and a counter of 12 bits."""

    def new(self) -> UUID:
        return id_of(self.numbers(1)[0])

    def numbers(self, count: int) -> list[int]:
        """Return ``count`` ids as numbers (see ``id_of``), in growing order. It reads the clock
        once. UUIDs would be more objects for the garbage collector."""
        first = max(self._clock.wall_nanos() // 1_000_000 << 12, self._last + 1)
        self._last = first + count - 1
        noise = struct.unpack(f">{count}Q", self._random_bytes(8 * count))
        # of 64 random bits, 62 fit between the version (7) and the variant (0b10)
        return [
            ((tick >> 12) << 16 | 0x7000 | tick & 0xFFF) << 64 | 0b10 << 62 | bits >> 2
            for tick, bits in enumerate(noise, first)
        ]


# UUID's own constructor takes three times as long, because it accepts six forms
_new_uuid = UUID.__new__
_set_int = UUID.int.__set__  # type: ignore[attr-defined, misc]
_UNKNOWN = SafeUUID.unknown
_set_safe = UUID.is_safe.__set__  # type: ignore[attr-defined, misc]


def id_of(number: int) -> UUID:
    """Return the UUID of a number, without a check."""
    made = _new_uuid(UUID)
    _set_int(made, number)
    _set_safe(made, _UNKNOWN)
    return made


@dataclass(frozen=True)
class Env:
    """What a process knows about the world outside the database."""

    clock: Clock = field(default_factory=Clock)
    rng: random.Random = field(default_factory=random.Random)
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    random_bytes: Callable[[int], bytes] = os.urandom
    """For ids, of which no two processes may have the same."""
    ids: Ids = field(init=False)
    boot_now: Callable[[], float] = field(init=False)
    """The clock's method: it is called several times for each job."""
    new_id: Callable[[], UUID] = field(init=False)

    def __post_init__(self) -> None:
        ids = Ids(self.clock, self.random_bytes)
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "boot_now", self.clock.boot_now)
        object.__setattr__(self, "new_id", ids.new)

    def wall_now(self) -> datetime:
        return self.clock.wall_now()

    def due_now(self) -> datetime | None:
        """Return the time for the database to use. In production it is None: the database uses its
        own clock. A simulation returns virtual time, and ``leasework.testing`` a later moment."""
        return None

    def nonce(self) -> str:
        """Return text that nobody can guess."""
        return secrets.token_urlsafe(18)

    @property
    def user(self) -> str:
        """The user who runs this process, for the record of what people do. It proves nothing."""
        try:
            return getpass.getuser()
        except (KeyError, OSError, ImportError):
            return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"

    def jitter(self, seconds: float, share: float) -> float:
        """Return ``seconds``, plus or minus at most ``share`` of it."""
        return seconds * (1 + share * (2 * self.rng.random() - 1))


ASSIGNED_NODE = "LEASEWORK_NODE_ID"


GIVEN_DSN = "LEASEWORK_GIVEN_DSN"
"""A supervisor's ``--dsn`` for its workers. It may have a password, and everyone can see arguments
in ``ps``. Unlike ``LEASEWORK_DSN``, it wins over the code's."""


def assign_node_id(node_id: UUID) -> str:
    """Return the value of ``LEASEWORK_NODE_ID`` for a child that is about to start. It contains our
    pid, so that a grandchild that inherits the variable does not take the same identity."""
    return f"{node_id}:{os.getpid()}"


def take_assigned_node_id() -> UUID | None:
    """Take the id that our parent chose for us; None if there is none or it is not for us."""
    value = os.environ.pop(ASSIGNED_NODE, "")
    node_id, _, parent = value.partition(":")
    if not parent or parent != str(os.getppid()):
        return None
    _taken.clear()
    _taken[os.getpid()] = UUID(node_id)
    return _taken[os.getpid()]


_taken: dict[int, UUID] = {}
"""By pid, so that a fork of this process has none."""


def assigned_node_id() -> UUID | None:
    """Return the id that our parent chose for this process, even after it was taken. A node that
    rejoins under a new id gives it, so that a death certificate for it reaches the node."""
    return _taken.get(os.getpid())
