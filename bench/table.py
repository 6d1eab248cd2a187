"""Who is measured."""

from __future__ import annotations

from bench.process import Contender

RAW = Contender("raw loop", "raw", "asyncpg, one connection, claims and acks of 100")
LEASEHOLD = Contender("leasehold", "lease", "defaults")
