"""What the doctor reads about the set-up: the login, the connection and the server."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Tokens(Struct, frozen=True):
    """The source of the next tokens, and the highest one that the database has."""

    timeline: int | None
    """The server's timeline, or None if the server does not report it."""
    following: int | None
    """The token of the next claim. None: the row that keeps tokens growing was deleted."""
    highest: int | None
    """The highest token of a node or a failed attempt."""
    behind: bool
    """The sequence of the events is behind their rows."""


class Setup(Struct):
    """The facts that the checks of the set-up judge."""

    schema: str
    role: str
    """What the login is for: ``worker``, ``enqueue`` or ``observer``."""
    server: dict[str, Any]
    """version, login, database, pooled, settings, and counts of connections: used, most, and the
    same for the role and the database."""
    node_takes: tuple[int, int]
    """The connections that a node holds, and how many more it opens on demand."""
    denied: list[str] = field(default_factory=list)
    """The privileges of the role that this login lacks, in words."""
    offset: float = 0.0
    """The server's time minus ours, in seconds, by the shortest round trip."""
    offset_error: float = 0.0
    """The error of ``offset``, plus or minus."""
    tokens: Tokens | None = None
    """None: not read."""
    differences: list[str] = field(default_factory=list)
    """How the schema differs from a new one."""
    not_compared: str = ""
    """Why the schema was not compared with a new one."""
