"""Who is measured."""

from __future__ import annotations

from collections.abc import Sequence

from bench.process import Contender

RAW = Contender("raw loop", "raw", "asyncpg, LISTEN, claims and acks of 100 on one connection")
LEASEHOLD = Contender("leasehold", "lease", "defaults")
PEERS: dict[str, Contender] = {}


def chosen(names: Sequence[str]) -> list[Contender]:
    """The raw loop, leasehold, and the peers of these names."""
    wanted = list(PEERS) if "peers" in names else list(names)
    return [RAW, LEASEHOLD, *(PEERS[name] for name in wanted)]
