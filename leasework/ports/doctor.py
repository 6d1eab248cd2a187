"""What an examination of the database found, without any assessment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from leasework.config import Settings
from leasework.errors import LeaseworkError
from leasework.ports.rows import NodeView, TableView, TransactionView

NEVER, TRANSACTION, SESSION = "none", "transaction", "session"
"""The pooler in front of the database: none, or one that assigns a connection per transaction or
per session."""


@dataclass(slots=True)
class Clocks:
    """The server's clock compared with ours, in seconds."""

    round_trips: list[float] = field(default_factory=list)
    offset: float = 0.0
    """The server's time minus ours, by the shortest round trip."""
    offset_error: float = 0.0
    """The error of ``offset``, plus or minus."""
    rate: float = 0.0
    """How much faster than our CLOCK_BOOTTIME it ran, as a share."""
    rate_error: float = 1.0
    jump: float = 0.0
    """The largest step between two reads that no round trip explains, or 0."""
    watched: float = 0.0
    """How long it was watched."""


@dataclass(slots=True)
class Gaps:
    """The gaps between the renewals of one node while it was watched, in seconds."""

    worker_id: str
    lease: float
    worst: float
    """The longest time between two renewals, or since the last one."""


class Tokens(Struct, frozen=True):
    """The source of the next tokens, and the highest one that the database has."""

    seen: int
    """The server's timeline when a node last asked; 1 if the server did not report it."""
    added: int
    """The number that is added to the timeline."""
    server: int | None
    """The server's timeline now, or None if the server does not report it."""
    number: int
    """The next number of the sequence."""
    claims: int | None
    """The highest token of a node or a failed attempt."""
    behind: bool = False
    """The sequence of the events is behind their rows."""

    @property
    def next_claim(self) -> int:
        timeline = self.server or 1
        before = self.seen if timeline < self.seen else 0
        return (self.added + before + timeline - 1 << 32) + self.number


@dataclass(slots=True)
class Examination:
    """The parts that could be examined; ``skipped`` says why the others could not."""

    own: Settings
    """leasework's settings."""
    role: str
    """What the login is for: ``worker``, ``enqueue`` or ``observer``."""
    error: LeaseworkError | None = None
    """Why the database could not be examined at all."""
    server: dict[str, Any] = field(default_factory=dict)
    """version, role, database, superuser, recovering, read_only, encrypted, local, and counts of
    connections: used, most, role_most, database_most."""
    pooler: str = NEVER
    listen_seconds: float | None = None
    """How long a notification to ourselves took, or None if it did not arrive or was not tried."""
    tcp: dict[str, int] | None = None
    """Our end of the connection in the kernel (milliseconds, seconds). None: a Unix socket."""
    settings: Mapping[str, str | None] = field(default_factory=dict)
    """The values that a new session of this role gets. None: this version lacks the setting."""
    denied: dict[str, list[str]] = field(default_factory=dict)
    """Role of leasework -> the privileges of that role that this login lacks, in words."""
    schema_missing: LeaseworkError | None = None
    """Why there is no schema to examine."""
    schema_number: int | None = None
    schema_min_known: int = 0
    differences: list[str] = field(default_factory=list)
    tokens: Tokens | None = None
    """None if the row was deleted, or was not examined."""
    clocks: Clocks = field(default_factory=Clocks)
    nodes: list[NodeView] = field(default_factory=list)
    gaps: list[Gaps] = field(default_factory=list)
    trouble: dict[str, int] = field(default_factory=dict)
    """Kind of event -> how many in the last day, for the kinds that show late renewals."""
    connections: dict[str, int] = field(default_factory=dict)
    """leasework's own connections, by the name of the application."""
    tables: list[TableView] = field(default_factory=list)
    transactions: list[TransactionView] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Part -> why it was not examined."""
