"""Sends a statement on a connection and reads its answer, without a cursor.

psycopg's cursor is most of the client's cost of a short statement (ADR 20). psycopg still converts
values and rows. A statement is prepared at its fifth use, or when its values are big.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.abc import PQGen
from psycopg.abc import Transformer as Transforms
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import READY_R, WAIT_R, WAIT_RW

from leasework.pg.sql import Query
from leasework.tuning import Tuning

Row = tuple[Any, ...]

_FORGOTTEN = ("0A000", "26000")
"""A table has changed since the statement was prepared, or the server no longer has the statement
(psycopg deallocates all when it rolls back). It was not executed, and is sent unprepared."""
_GOOD = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class Answer:
    """The answer of one statement. ``rows`` still works after the connection's next statement."""

    __slots__ = ("_result", "_transformer")

    def __init__(self, transformer: Transforms, result: PGresult) -> None:
        self._transformer = transformer
        self._result = result

    def rows(self) -> list[Row]:
        """Return the rows in Python's types. Raises psycopg.Error."""
        if not self._result.nfields:
            return []
        self._transformer.set_pgresult(self._result)
        return self._transformer.load_rows(0, self._result.ntuples, tuple)


class Exchange:
    """Sends the statements of one connection, one at a time."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._pgconn = connection.pgconn
        self._encoding = connection.info.encoding
        self._prepares = connection.prepare_threshold is not None
        self._transformer = Transformer(connection)
        self._uses: Counter[tuple[Query, tuple[int, ...]]] = Counter()
        self._names: dict[tuple[Query, tuple[int, ...]], bytes] = {}
        self._made = 0

    def steps(self, query: Query, params: Mapping[str, Any]) -> PQGen[Answer]:
        """Send a statement and read its answer. Raises psycopg.Error."""
        transformer, pgconn = self._transformer, self._pgconn
        values = transformer.dump_sequence([params[name] for name in query.names], query.formats)
        types, formats = transformer.types or (), transformer.formats
        name = self._names.get((query, types))
        if name is None:
            big = sum(len(value) for value in values if value is not None) > Tuning.prepare_bytes
            name = yield from self._prepared(query, types, at_once=big)
        if name is not None:
            pgconn.send_query_prepared(name, values, formats)
            result = yield from _result(pgconn)
            if result.status in _GOOD:
                return Answer(transformer, result)
            error = self._error(result)
            if error.sqlstate not in _FORGOTTEN:
                raise error
            del self._names[query, types]
            self._uses[query, types] = 0
        pgconn.send_query_params(query.text, values, types, formats)
        result = yield from _result(pgconn)
        if result.status not in _GOOD:
            raise self._error(result)
        return Answer(transformer, result)

    def _prepared(
        self, query: Query, types: tuple[int, ...], *, at_once: bool
    ) -> PQGen[bytes | None]:
        """Return the name of the prepared statement. None if it is not to be prepared yet."""
        key = query, types
        self._uses[key] += 1
        full = len(self._names) >= Tuning.prepared_statements
        if not self._prepares or full or (self._uses[key] < Tuning.prepare_uses and not at_once):
            return None
        self._made += 1
        name = b"leasework_%d" % self._made
        self._pgconn.send_prepare(name, query.text, types)
        result = yield from _result(self._pgconn)
        if result.status != ExecStatus.COMMAND_OK:
            raise self._error(result)
        self._names[key] = name
        return name

    def _error(self, result: PGresult) -> psycopg.Error:
        return psycopg.errors.error_from_result(result, encoding=self._encoding)


def _result(pgconn: PGconn) -> PQGen[PGresult]:
    """Send all output, and read until the server is ready for the next statement."""
    while pgconn.flush():
        if (yield WAIT_RW) & READY_R:
            pgconn.consume_input()  # otherwise the server may block until its output is read
    result: PGresult | None = None
    while True:
        while pgconn.is_busy():
            yield WAIT_R
            try:
                pgconn.consume_input()
            except psycopg.OperationalError:
                if result is None or result.status in _GOOD:
                    raise  # the statement is committed only when the server is ready again
                return result  # the server's reason for closing the connection
        following = pgconn.get_result()
        if following is None:
            break
        result = following
    if result is None:
        raise psycopg.OperationalError("the connection is lost")
    return result
