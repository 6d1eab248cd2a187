"""What an examination of the database found, without a judgement: see services/doctor.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leasehold.errors import LeaseholdError
from leasehold.ports.common import Rows
from leasehold.ports.rows import NodeView

NEVER, TRANSACTION, SESSION = "none", "transaction", "session"
"""What stands between: nothing, a pooler that lends a connection for a transaction, or one that
lends it for as long as the client stays."""


@dataclass(slots=True)
class Clocks:
    """The server's clock beside ours. Seconds."""

    round_trips: list[float] = field(default_factory=list)
    offset: float = 0.0
    """The server's time less ours, by the shortest round trip."""
    offset_error: float = 0.0
    """Plus or minus."""
    rate: float = 0.0
    """How much faster it ran than our CLOCK_BOOTTIME, as a share."""
    rate_error: float = 1.0
    jump: float = 0.0
    """The largest step between two looks that no round trip explains; 0: none."""
    watched: float = 0.0
    """How long it was looked at."""


@dataclass(slots=True)
class Gaps:
    """What the renewals of one node showed while they were watched. Seconds."""

    worker_id: str
    lease: float
    worst: float
    """The longest time between two renewals, or since the last one."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Where the next tokens come from, and the highest that the database remembers."""

    seen: int
    """The server's timeline when a node last asked; 1 when it did not tell."""
    added: int
    """What is added to it."""
    server: int | None
    """The server's timeline now; None: it does not tell."""
    number: int
    """The next number of the sequence."""
    claims: int | None
    """The highest token of a node or a failed attempt."""

    @property
    def next_claim(self) -> int:
        timeline = self.server or 1
        before = self.seen if timeline < self.seen else 0
        return (self.added + before + timeline - 1 << 32) + self.number


@dataclass(slots=True)
class Examination:
    """Each part is filled as far as it could be asked; ``skipped`` says why the rest was not."""

    error: LeaseholdError | None = None
    """Why the database could not be asked at all."""
    server: dict[str, Any] = field(default_factory=dict)
    """version, role, database, superuser, recovering, read_only, encrypted, local, and counts of
    connections: used, most, role_most, database_most."""
    pooler: str = NEVER
    listen_seconds: float | None = None
    """How long a notification to ourselves took; None: it did not arrive, or was not tried."""
    tcp: dict[str, int] | None = None
    """Our end of the connection, as the kernel has it (milliseconds, seconds); None: a socket."""
    settings: Mapping[str, str | None] = field(default_factory=dict)
    """What a new session of this role gets; None: this version has no such setting."""
    denied: dict[str, list[str]] = field(default_factory=dict)
    """Role of leasehold -> what it may and this login may not, in words."""
    schema_number: int | None = None
    schema_min_known: int = 0
    differences: list[str] = field(default_factory=list)
    tokens: Tokens | None = None
    """None: somebody deleted the row, or it was not looked at."""
    clocks: Clocks = field(default_factory=Clocks)
    nodes: list[NodeView] = field(default_factory=list)
    gaps: list[Gaps] = field(default_factory=list)
    trouble: dict[str, int] = field(default_factory=dict)
    """Kind of event -> how many in the last day, of those that speak of late renewals."""
    connections: Rows = field(default_factory=list)
    """application, count: of leasehold's own connections."""
    tables: Rows = field(default_factory=list)
    pins: Rows = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Part -> why it was not looked at."""
