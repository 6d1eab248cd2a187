"""Declares operations on the database, each once, with its SQL file, parameters and answer.

The parameters are those of the method, except ``timeout``. A record (a NamedTuple or a Struct) is
sent as its fields: ``node: NodeIdentity`` as ``node_id``, ``node_app`` and so on; a sequence of
tuples as one array for each column. Dictionaries and sequences of structs are JSON (ADR 25).

The return annotation decides what the rows become: ``bool`` is whether there is a row, ``int`` the
first column of the only row, ``X | None`` that of the first row if there is one, ``list[X]`` one of
each row, and ``tuple[X, Y]`` the columns of the only row. A record is filled by position.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import EnumType
from functools import cached_property, partial, wraps
from itertools import islice
from types import NoneType, UnionType
from typing import (
    Any,
    Concatenate,
    NamedTuple,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Struct, structs
from psycopg.types.json import Jsonb

from leasework.errors import Conflict, LeaseworkError
from leasework.pg.connection.fast.link import Row
from leasework.pg.connection.pool import Pool

Now = datetime | None
"""The time of a call. None: the database's own clock."""
Answer = Callable[[list[Row]], Any]
S = TypeVar("S", bound="Operations")
P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[Concatenate[S, P], Coroutine[Any, Any, R]]
_CLEANUP_SECONDS = 1.0


class Term(NamedTuple):
    """A leadership of this process, which its duties name."""

    leader: str
    token: int


@dataclass(eq=False)
class Operation:
    """A declared operation."""

    _method: Callable[..., Any]
    sql: str
    """``noun/verb``: the statement's file."""
    _answer: Answer | None
    aside: bool
    """It gets a connection of its own, so that nothing waits behind it."""
    waits: bool
    """It may wait for another transaction. Such calls leave a connection to the others."""

    def __post_init__(self) -> None:
        parameters = list(inspect.signature(self._method).parameters.values())[1:]
        self._names = [parameter.name for parameter in parameters]
        self._defaults = {p.name: p.default for p in parameters if p.default is not p.empty}

    def params(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the statement's parameters, by name, for a call."""
        given = {**self._defaults, **dict(zip(self._names, args, strict=False)), **kwargs}
        for name, (parts, many) in self._several.items():
            value = given.pop(name)
            if many:
                values = zip(*value, strict=True) if value else [()] * len(parts)
            else:
                values = [getattr(value, part) for part in parts]
            given.update(zip([f"{name}_{part}" for part in parts], values, strict=True))
        return given

    # Annotations are resolved at the first call, when all classes that they name exist.
    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self._method)

    @cached_property
    def _several(self) -> dict[str, tuple[list[str], bool]]:
        """The parameters that become several: their parts, and whether these are arrays."""
        found = {}
        for name in self._names:
            kind, many = self._hints[name], False
            if get_origin(kind) is Sequence and not _is_struct(get_args(kind)[0]):
                kind, many = get_args(kind)[0], True
            if parts := _parts(kind):
                found[name] = (list(parts), many)
        return found

    @cached_property
    def documents(self) -> frozenset[str]:
        """The statement's parameters that are sent as JSON."""
        kinds = {name: self._hints[name] for name in self._names}
        for name in self._several:
            kinds |= {f"{name}_{part}": kind for part, kind in _parts(kinds[name]).items()}
        return frozenset(name for name, kind in kinds.items() if _is_document(kind))

    @cached_property
    def read(self) -> Answer:
        """The function that makes the method's answer from the rows."""
        return self._answer or reader(self._hints["return"])


def _plain(value: Any) -> Any:
    """Convert what JSON lacks: records, times and ids."""
    return structs.asdict(value) if isinstance(value, Struct) else str(value)


_dumps = partial(json.dumps, default=_plain)


def value(rows: list[Row]) -> Any:
    """Return the first column of the only row."""
    return rows[0][0]


def operation(
    sql: str, *, answer: Answer | None = None, aside: bool = False, waits: bool = False
) -> Callable[[Method[S, P, R]], Method[S, P, R]]:
    """Declare an operation. See the module's docstring."""

    def declare(method: Method[S, P, R]) -> Method[S, P, R]:
        declared = Operation(method, sql, answer, aside, waits)

        @wraps(method)
        async def run(store: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            params = declared.params(args, kwargs)
            timeout = params.pop("timeout", None)
            found: R = declared.read(await store.execute(declared, params, timeout))
            return found

        return run

    return declare


class Operations:
    """A part of the Store: operations over one pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def execute(
        self, operation: Operation, params: dict[str, Any], timeout: float | None
    ) -> list[Row]:
        """Execute a declared operation's statement, and return its rows."""
        for name, value in params.items():
            if name in operation.documents:
                params[name] = Jsonb(value, _dumps)
            elif isinstance(value, (tuple, set, frozenset)):
                params[name] = list(value)
        how = timeout, operation.aside, operation.waits
        try:
            return await self.pool.fetch(operation.sql, params, *how)
        except Conflict:  # so that the next try does not wait for a frozen process
            with suppress(LeaseworkError):
                old = {"seconds": self.pool.call_timeout, "now": None}
                await self.pool.fetch("session/end_unread", old, _CLEANUP_SECONDS)
            raise

    @operation("schedule/clock")
    async def database_now(self, now: Now) -> datetime: ...


def reader(annotation: Any) -> Answer:
    """Return the function that makes an answer of this type from rows."""
    if annotation is NoneType:
        return lambda rows: None
    if annotation is bool:
        return bool
    if isinstance(annotation, UnionType):
        [kind] = [part for part in get_args(annotation) if part is not NoneType]
        make = _maker(kind)
        return lambda rows: make(rows[0]) if rows else None
    origin = get_origin(annotation)
    if origin is tuple and Ellipsis not in get_args(annotation):
        return lambda rows: tuple(rows[0])
    if origin in (list, set, tuple, frozenset):
        make = _maker(get_args(annotation)[0])
        return lambda rows: origin(map(make, rows))
    make = _maker(annotation)
    return lambda rows: make(rows[0])


def _maker(kind: Any) -> Callable[[Row], Any]:
    """Return the function that makes a value of this type from a row."""
    if get_origin(kind) is tuple:
        return tuple
    if parts := _parts(kind):
        widths = [(inner, len(_parts(inner))) for inner in parts.values()]
        if not any(width for _, width in widths):
            return lambda row: kind(*row[: len(parts)])

        def make(row: Row) -> Any:
            left = iter(row)
            return kind(*[inner(*islice(left, n)) if n else next(left) for inner, n in widths])

        return make
    if isinstance(kind, EnumType):
        return lambda row: None if row[0] is None else kind(row[0])
    return lambda row: row[0]


def _parts(kind: Any) -> dict[str, Any]:
    """Return the fields of a record, or of a tuple by their numbers, with their types."""
    if get_origin(kind) is tuple and Ellipsis not in get_args(kind):
        return {str(number): inner for number, inner in enumerate(get_args(kind), 1)}
    if names := getattr(kind, "__struct_fields__", None) or getattr(kind, "_fields", None):
        hints = get_type_hints(kind)
        return {name: hints[name] for name in names}
    return {}


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _is_document(annotation: Any) -> bool:
    if annotation is dict or get_origin(annotation) is dict:
        return True
    parts = get_args(annotation)
    return bool(parts) and (_is_document(parts[0]) or _is_struct(parts[0]))
