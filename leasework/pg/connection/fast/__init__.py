"""Only for speed: short statements take less than half of the client's CPU (ADR 20).

Each part does what psycopg does, and has psycopg's plain way beside it. ``Link.plain`` selects that
of ``link`` and ``Link.send``; ``tests/contract`` runs on both ways.
"""
