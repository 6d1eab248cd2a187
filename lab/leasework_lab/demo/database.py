"""The demo's database: that of LEASEWORK_DSN, or a PostgreSQL of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass

from leasework_lab.demo.tables import SCHEMA
from leasework_lab.server import LabServer

_REAL = "To use your own database, set LEASEWORK_DSN=postgresql://…"


@dataclass
class DemoDatabase:
    """``title`` and ``hint`` are for people and contain no password."""

    dsn: str
    title: str
    hint: str
    server: LabServer | None = None

    @classmethod
    def open(cls) -> DemoDatabase:
        """The database of LEASEWORK_DSN, or a fresh server in a folder of its own.

        Waits a second or two for the server. Raises EmbeddedError.
        """
        dsn = os.environ.get("LEASEWORK_DSN", "")
        if dsn and dsn != "embedded":
            return cls(dsn, f"from LEASEWORK_DSN, schema {SCHEMA}", "")
        server = LabServer.start(prefix="leasework-demo-")
        title = f"PostgreSQL {server.version}, started for this demo"
        return cls(server.dsn, title, _REAL, server)

    @property
    def can_cut(self) -> bool:
        """Whether connections can go through a proxy. A user's own database may require TLS."""
        return self.server is not None

    def close(self) -> None:
        """Stop our own server and remove its folder."""
        if self.server:
            self.server.close()
