"""Executes the operations declared in ports/ on PostgreSQL."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct, structs
from psycopg.types.json import Jsonb

from leasehold.errors import Conflict, LeaseholdError
from leasehold.model.deadline import Level
from leasehold.pg.connection.encodings import fetch_told, has_words
from leasehold.pg.connection.fast.exchange import Row
from leasehold.pg.connection.pool import Pool
from leasehold.pg.connection.session import Params
from leasehold.ports import Operation
from leasehold.ports.operation import Operations

_CLEANUP_SECONDS = 1.0


class PgOperations(Operations):
    """Operations over one pool."""

    _pool: Pool

    async def execute(
        self, operation: Operation, params: Params, timeout: float | None
    ) -> list[Row]:
        sent = _sent(params, operation.documents)
        try:
            if has_words(sent):
                return await fetch_told(self._pool, operation.sql, sent, timeout)
            return await self._pool.fetch(operation.sql, sent, timeout, operation.aside)
        except Conflict:  # so that the next try does not wait for a frozen process
            with suppress(LeaseholdError):
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
    if isinstance(value, Level):
        return value.as_json()
    return structs.asdict(value) if isinstance(value, Struct) else str(value)


_dumps = partial(json.dumps, default=_plain)
