"""Executes the operations declared in ports/ on PostgreSQL."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct, structs
from psycopg.types.json import Jsonb

from leasework.errors import Conflict, LeaseworkError
from leasework.pg.connection.encodings import fetch_told, has_words
from leasework.pg.connection.fast.exchange import Row
from leasework.pg.connection.pool import Pool
from leasework.pg.connection.session import Params
from leasework.ports import Operation
from leasework.ports.operation import Operations

_CLEANUP_SECONDS = 1.0


class PgOperations(Operations):
    """Operations over one pool."""

    _pool: Pool

    async def execute(
        self, operation: Operation, params: Params, timeout: float | None
    ) -> list[Row]:
        sent = _sent(params, operation.documents)
        try:
            fetch = partial(fetch_told, self._pool) if has_words(sent) else self._pool.fetch
            return await fetch(operation.sql, sent, timeout, operation.aside, operation.waits)
        except Conflict:  # so that the next try does not wait for a frozen process
            with suppress(LeaseworkError):
                old = {"seconds": self._pool.call_timeout, "now": None}
                await self._pool.fetch("session/end_unread", old, _CLEANUP_SECONDS)
            raise


def _sent(params: Params, documents: frozenset[str]) -> Params:
    """The parameters as psycopg takes them."""
    sent: Params = {}
    for name, value in params.items():
        if name in documents:
            sent[name] = Jsonb(value, _dumps)
        elif isinstance(value, (tuple, set, frozenset)):
            sent[name] = list(value)
        else:
            sent[name] = value
    return sent


def _plain(value: Any) -> Any:
    """Convert what JSON lacks: records, times and ids."""
    return structs.asdict(value) if isinstance(value, Struct) else str(value)


_dumps = partial(json.dumps, default=_plain)
