"""Executes the operations declared beside it on PostgreSQL."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct, structs
from psycopg.types.json import Jsonb

from leasework.errors import BadPayload, Conflict, LeaseworkError
from leasework.pg.connection.encodings import words_in_ascii
from leasework.pg.connection.fast.link import Row
from leasework.pg.connection.pool import Pool
from leasework.pg.connection.session import Params
from leasework.store.operation import Operation, Operations

_CLEANUP_SECONDS = 1.0


class PgOperations(Operations):
    """Operations over one pool."""

    _pool: Pool

    async def execute(
        self, operation: Operation, params: Params, timeout: float | None
    ) -> list[Row]:
        sent = dict(params)
        for name, value in params.items():
            if name in operation.documents:
                sent[name] = Jsonb(value, _dumps)
            elif isinstance(value, (tuple, set, frozenset)):
                sent[name] = list(value)
        fetch, how = self._pool.fetch, (timeout, operation.aside, operation.waits)
        try:
            try:
                return await fetch(operation.sql, sent, *how)
            except BadPayload:
                if not (words := words_in_ascii(sent)):
                    raise
                return await fetch(operation.sql, {**sent, **words}, *how)
        except Conflict:  # so that the next try does not wait for a frozen process
            with suppress(LeaseworkError):
                old = {"seconds": self._pool.call_timeout, "now": None}
                await self._pool.fetch("session/end_unread", old, _CLEANUP_SECONDS)
            raise


def _plain(value: Any) -> Any:
    """Convert what JSON lacks: records, times and ids."""
    return structs.asdict(value) if isinstance(value, Struct) else str(value)


_dumps = partial(json.dumps, default=_plain)
