"""Declares operations on the database, each once, with its SQL file, parameters and answer.

    class NodeStore(Operations):
        @operation("node/halt")
        async def halt(self, node: UUID, halted: bool) -> str | None:
            '''Its meaning.'''

The statement's parameters are those of the method, except ``timeout``, which limits the call, in
seconds. The return annotation decides what the rows become:

==================  ===========================================================================
``None``            nothing
``bool``            whether there is a row
``int``, ``str`` …  the first column of the only row
``X | None``        the same of the first row; None if there is none
``list[X]`` …       one of each row; sets and ``tuple[X, ...]`` likewise
``tuple[X, Y]``     the columns of the only row
==================  ===========================================================================

``X`` may be a row class: a NamedTuple or a dataclass, filled by position. Columns after its last
field are ignored. ``answer=`` reads the rows in another way. A store overrides the method if an
operation needs more than one statement, or its parameters in another form.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import fields, is_dataclass
from enum import EnumType
from functools import cached_property, wraps
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from leasehold.errors import QueryFailed

Row = tuple[Any, ...]
Answer = Callable[[list[Row]], Any]
P = ParamSpec("P")
R = TypeVar("R")


class Operation:
    """A declared operation, as a store executes it."""

    def __init__(
        self, method: Callable[..., Any], sql: str, answer: Answer | None, aside: bool
    ) -> None:
        self.sql = sql
        """``noun/verb``: the statement's file."""
        self.aside = aside
        """It gets a connection of its own, so that nothing waits behind it."""
        self._method = method
        self._answer = answer
        parameters = list(inspect.signature(method).parameters.values())[1:]
        self._names = [parameter.name for parameter in parameters]
        self._defaults = {p.name: p.default for p in parameters if p.default is not p.empty}

    def params(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of a call, by name."""
        return {**self._defaults, **dict(zip(self._names, args, strict=False)), **kwargs}

    # Annotations are resolved at the first call, when all classes that they name exist.
    @cached_property
    def documents(self) -> frozenset[str]:
        """The parameters that are sent as JSON: dictionaries, and sequences of records."""
        hints = get_type_hints(self._method)
        return frozenset(name for name in self._names if _is_document(hints[name]))

    @cached_property
    def read(self) -> Answer:
        """The function that makes the method's answer from the rows."""
        return self._answer or reader(get_type_hints(self._method)["return"])


class Operations:
    """A part of the Store. ``execute`` runs a declared operation."""

    async def execute(
        self, operation: Operation, params: dict[str, Any], timeout: float | None
    ) -> list[Row]:
        """Execute the operation's statement, and return its rows."""
        raise QueryFailed("this store does not execute declarations", got=operation.sql)


def count(rows: list[Row]) -> int:
    """Return the number of rows."""
    return len(rows)


def value(rows: list[Row]) -> Any:
    """Return the first column of the only row."""
    return rows[0][0]


def operation(
    sql: str, *, answer: Answer | None = None, aside: bool = False
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """Declare an operation. See the module's docstring."""

    def declare(method: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        declared = Operation(method, sql, answer, aside)

        @wraps(method)
        async def run(*args: P.args, **kwargs: P.kwargs) -> R:
            store, *given = args
            assert isinstance(store, Operations)
            params = declared.params(tuple(given), kwargs)
            timeout = params.pop("timeout", None)
            found: R = declared.read(await store.execute(declared, params, timeout))
            return found

        return run

    return declare


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
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        size = len(fields(kind)) if is_dataclass(kind) else len(kind._fields)
        return lambda row: kind(*row[:size])
    if isinstance(kind, EnumType):
        return lambda row: None if row[0] is None else kind(row[0])
    return lambda row: row[0]


def _is_document(annotation: Any) -> bool:
    if annotation is dict or get_origin(annotation) is dict:
        return True
    parts = get_args(annotation)
    return bool(parts) and (_is_document(parts[0]) or is_dataclass(parts[0]))
