"""The only reader of clocks, random numbers, new ids and the host's name.

Everything else gets an :class:`Env`; the simulation passes one of its own.
"""

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

# CLOCK_BOOTTIME goes on while the machine sleeps; CLOCK_MONOTONIC does not. A lease that was
# slept through must be seen as expired. Where the kernel has no such clock we take the other.
# Windows has neither; its monotonic clock counts while the machine sleeps.
_boot_now: Callable[[], float] = time.monotonic
if hasattr(time, "clock_gettime"):
    _boot_now = partial(
        time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", None) or time.CLOCK_MONOTONIC
    )


# psycopg needs a loop that watches sockets, and the default one of Windows does not
LOOP_FACTORY = asyncio.SelectorEventLoop if sys.platform == "win32" else None
"""For asyncio.Runner, in threads of our own; None: the usual loop."""

Rng = random.Random


def seeded(seed: int | str) -> Rng:
    """Random numbers that come again with the same seed: for simulations alone."""
    return random.Random(seed)


class Clock:
    """``boot_now`` (seconds, only differences mean something) says who is alive;
    ``wall_now`` (UTC) is for people and for ids, and decides nothing."""

    def boot_now(self) -> float:
        return _boot_now()

    def wall_now(self) -> datetime:
        return datetime.now(UTC)

    def wall_millis(self) -> int:
        """``wall_now`` as milliseconds since 1970, for the many ids of a bulk enqueue."""
        return time.time_ns() // 1_000_000


class Ids:
    """UUIDv7: the first 48 bits are milliseconds, so that index inserts stay together, and
    ids of one process grow."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def new(self) -> UUID:
        return id_of(self.numbers(1)[0])

    def numbers(self, count: int) -> list[int]:
        """Of so many ids (see ``id_of``), in growing order, for one look at the clock and one at
        the random source. A UUID is an object more that the garbage collector goes through."""
        first = self._next(count)
        noise = struct.unpack(f">{count}Q", self._random_bytes(8 * count))
        return [_uuid7(ticks, bits) for ticks, bits in enumerate(noise, first)]

    def _next(self, count: int) -> int:
        """The first of so many moments: milliseconds, and 12 bits that count up inside one."""
        first = max(self._clock.wall_millis() << 12, self._last + 1)
        self._last = first + count - 1
        return first

    def _random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


# UUID's own constructor takes three times as long: it looks which of six forms it was given
_new_uuid = UUID.__new__
_set_int = UUID.int.__set__  # type: ignore[attr-defined, misc]
_UNKNOWN = SafeUUID.unknown
_set_safe = UUID.is_safe.__set__  # type: ignore[attr-defined, misc]


def id_of(number: int) -> UUID:
    """The UUID of a number, unchecked."""
    made = _new_uuid(UUID)
    _set_int(made, number)
    _set_safe(made, _UNKNOWN)
    return made


def _uuid7(ticks: int, bits: int) -> int:
    """Of a moment and 62 of 64 random bits."""
    high = (ticks >> 12) << 16 | 0x7000 | ticks & 0xFFF
    return high << 64 | 0b10 << 62 | bits >> 2


@dataclass(frozen=True)
class Env:
    """What a process knows of the world outside the database."""

    clock: Clock = field(default_factory=Clock)
    rng: random.Random = field(default_factory=random.Random)
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    ids: Ids = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", Ids(self.clock))
        object.__setattr__(self, "boot_now", self.clock.boot_now)  # asked several times a job

    def boot_now(self) -> float:
        return self.clock.boot_now()

    def wall_now(self) -> datetime:
        return self.clock.wall_now()

    def due_now(self) -> datetime | None:
        """What the database is to take for its time: None lets its own clock decide, which is
        what production does; a simulation answers with virtual time."""
        return None

    def new_id(self) -> UUID:
        return self.ids.new()

    def new_numbers(self, count: int) -> list[int]:
        """Of so many ids: ``id_of`` makes UUIDs of them."""
        return self.ids.numbers(count)

    def nonce(self) -> str:
        """Text that nobody can guess."""
        return secrets.token_urlsafe(18)

    @property
    def user(self) -> str:
        """Who runs this process, for the record of what people do; proves nothing."""
        try:
            return getpass.getuser()
        except (KeyError, OSError, ImportError):
            return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"

    def jitter(self, seconds: float, share: float) -> float:
        """``seconds`` ± ``share`` of it."""
        return seconds * (1 + share * (2 * self.rng.random() - 1))


ASSIGNED_NODE = "LEASEHOLD_NODE_ID"


GIVEN_DSN = "LEASEHOLD_GIVEN_DSN"
"""A supervisor's ``--dsn`` for its workers: it holds a password, and arguments are for all to
see in ``ps``. Unlike ``LEASEHOLD_DSN`` it wins over the code's."""


def assign_node_id(node_id: UUID) -> str:
    """The value of ``LEASEHOLD_NODE_ID`` for a child that is about to be started or forked.

    The parent's pid is part of it: a grandchild that inherits the variable must not take the
    same identity.
    """
    return f"{node_id}:{os.getpid()}"


def take_assigned_node_id() -> UUID | None:
    """The id that our parent chose for us, once; None when there is none or it is not ours."""
    value = os.environ.pop(ASSIGNED_NODE, "")
    node_id, _, parent = value.partition(":")
    if not parent or parent != str(os.getppid()):
        return None
    _taken.clear()
    _taken[os.getpid()] = UUID(node_id)
    return _taken[os.getpid()]


_taken: dict[int, UUID] = {}
"""By process: a fork of ours has none."""


def assigned_node_id() -> UUID | None:
    """The id that our parent chose for this process, also after it was taken: a node that joins
    again under an id of its own says by it whose death certificate is meant for it."""
    return _taken.get(os.getpid())
