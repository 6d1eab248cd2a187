"""Converts arguments and results whose annotations are more than plain JSON (ADR 35).

A value whose annotation is plain JSON is checked when it is enqueued, and not changed. A value
without an annotation is neither checked nor changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial, reduce
from inspect import signature, unwrap
from operator import or_
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Any,
    Literal,
    Never,
    NoReturn,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from leasework.errors import BadJob, BadPayload
from leasework.model.job import levels

_PLAIN = {Any, object, None, NoneType, bool, int, str, list, dict}
"""Without float: jsonb returns 1e16 as a whole number."""
_SIMPLE = (None, NoneType, bool, int, float, str, list, dict)
_WHOLES = (dict, list, tuple)


class Values:
    """Converts the arguments and the result of one handler. ``arguments`` are their names, without
    ``ctx``. ``outcomes`` are the types that a handler returns to decide what happens to its job,
    which are not results. Raises BadJob for an annotation that msgspec cannot convert."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Collection[str],
        outcomes: tuple[type, ...] = (),
    ) -> None:
        hints = _hints(unwrap(function))
        returned = _without(hints.pop("return", Any), (*outcomes, NoReturn, Never))
        defaults = {name: one.default for name, one in signature(function).parameters.items()}
        hints = {
            name: Union[hint, None] if defaults.get(name, ...) is None else hint  # noqa: UP007
            for name, hint in hints.items()
            if name in arguments
        }
        self._arguments = {name: hint for name, hint in hints.items() if not _plain(hint)}
        plain = {name: _Plain(hint) for name, hint in hints.items() if name not in self._arguments}
        self._plain = {name: one for name, one in plain.items() if one.hint is not Any}
        self.converts = bool(self._arguments)
        """The handler gets some arguments in another form than JSON's."""
        self._returned = Any if _plain(returned) else returned
        self._completion = _Plain(Any if returned in (None, NoneType) else returned)
        for name, hint in {**self._arguments, "return": self._returned}.items():
            try:
                _read(None, hint)
            except msgspec.ValidationError:
                pass
            except (TypeError, NotImplementedError, NameError) as error:
                raise BadJob(
                    f"the annotation of {name!r} cannot be converted from JSON: {error}",
                    got=hint,
                    do="Use a type that JSON or msgspec knows, or leave the annotation out",
                ) from None

    def write(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert arguments to JSON's types. Raises BadPayload."""
        for name, value in given.items():
            if isinstance(value, _WHOLES) and name not in self._arguments and _odd_keys(value):
                raise BadPayload(
                    f"argument {name} has a dict with keys that are not text",
                    do="Make them text, or annotate the argument: dict[int, str], dict[UUID, int]",
                )
        if self._plain:
            self._check(given)
        return self._each(given, _unchanged) if self._arguments else given

    def _check(self, given: dict[str, Any]) -> None:
        for name, value in given.items():
            plain = self._plain.get(name)
            if plain and type(value) not in plain.types and (error := plain.wrong(value)):
                raise _unfit(f"argument {name}", error, value) from None

    def read(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Convert arguments to the handler's types. Raises BadPayload."""
        return self._each(payload, _read) if self._arguments else payload

    def _each(self, given: dict[str, Any], convert: Callable[[Any, Any], Any]) -> dict[str, Any]:
        converted = dict(given)
        for name in given.keys() & self._arguments.keys():
            try:
                converted[name] = convert(given[name], self._arguments[name])
            except Exception as error:  # a model's own validation may raise anything
                raise _unfit(f"argument {name}", error, given[name]) from None
        return converted

    def write_result(self, returned: Any) -> Any:
        """Convert a result to JSON's types. Raises BadPayload."""
        return self._result(returned, _checked)

    def write_completion(self, result: Any) -> Any:
        """Convert what ``ctx.complete`` got, which no type checker compares with the annotation.
        Raises BadPayload, also for None if the handler returns a value."""
        try:
            if self._returned is not Any:
                return _checked(result, self._returned)
            if error := self._completion.wrong(result):
                raise error
        except Exception as error:
            raise _unfit("the result= of ctx.complete", error, result) from None
        return result

    def read_result(self, result: Any) -> Any:
        """Convert a result back to the type that the handler returned. Raises BadPayload."""
        return self._result(result, _read)

    def _result(self, value: Any, convert: Callable[[Any, Any], Any]) -> Any:
        if self._returned is Any or value is None:
            return value
        try:
            return convert(value, self._returned)
        except Exception as error:
            raise _unfit("the result", error, value) from None


class _Plain:
    """An annotation that JSON gives anyway. ``types``: those whose values need no look inside."""

    def __init__(self, hint: Any) -> None:
        self.hint = Any if hint is object else hint
        parts = get_args(self.hint) if get_origin(self.hint) in (Union, UnionType) else [hint]
        self.types = {NoneType if part is None else part for part in parts if part in _SIMPLE}
        try:
            msgspec.convert(None, self.hint)
        except msgspec.ValidationError:
            pass
        except (TypeError, NotImplementedError):  # such as a union of two kinds of lists
            self.hint = Any

    def wrong(self, value: Any) -> Exception | None:
        """Return why the value does not fit. It may be one that JSON makes fit, such as a subclass
        of int."""
        try:
            msgspec.convert(value, self.hint)
        except msgspec.ValidationError as error:
            if isinstance(value, tuple(self.types)):  # such as True for int
                return None
            try:
                msgspec.convert(json.loads(json.dumps(value)), self.hint)
            except (ValueError, TypeError, RecursionError):
                return error
        return None


def _unfit(what: str, error: Exception, value: object) -> BadPayload:
    """The message leaves out the value, which may be secret: errors are logged and stored."""
    why = re.sub(r" '.*'", "", str(error))  # msgspec quotes a wrong value of an enumeration
    return BadPayload(
        f"{what} does not fit its annotation: {why}",
        got=f"a value of type {type(value).__name__}",
        do="Pass what the annotation says, or change the annotation",
    )


def _checked(value: Any, hint: Any) -> Any:
    """Convert to JSON's types, and check that this can be read back."""
    return _written_and_read(value, hint)[0]


def _unchanged(value: Any, hint: Any) -> Any:
    """The same, and check that the value comes back as it is. It does not if it is of a subclass
    with further fields, or holds what JSON turns into something else."""
    written, read = _written_and_read(value, hint)
    if not _kept(value, read):
        raise BadPayload("it does not come back from JSON as it is")
    return written


def _kept(value: Any, read: Any) -> bool:
    """Return whether ``read`` is the ``value`` that was given. A text may stand for a value that is
    written as text, and a number for a Decimal."""
    if isinstance(value, str):
        return value == read if type(read) is str else not isinstance(read, bytes)
    if value is None or isinstance(value, (int, float)):
        return type(read) not in _SIMPLE or value == read or value != value
    if isinstance(value, dict) and isinstance(read, dict):
        if value.keys() == read.keys():
            return all(_kept(value[key], read[key]) for key in value)
        texts = all(isinstance(key, str) for key in value)
        return texts and len(value) == len(read) and not any(isinstance(key, str) for key in read)
    if isinstance(value, (list, tuple)) and isinstance(read, (list, tuple)):
        return len(value) == len(read) and all(map(_kept, value, read))
    if isinstance(value, (set, frozenset)):
        all_simple = all(isinstance(one, (str, int, float)) for one in value)
        return value == read or (all_simple and len(value) == len(read))
    if isinstance(value, datetime) and isinstance(read, datetime) and value.tzinfo and read.tzinfo:
        return value.astimezone(UTC) == read.astimezone(UTC)  # an hour that comes twice equals none
    if not isinstance(value, type(read)):
        return type(read) not in _SIMPLE
    if hasattr(value, "model_dump"):
        return type(value) is type(read) and _kept(_of_model(value), _of_model(read))
    names = _field_names(read)
    if names and type(value) is not type(read):
        return False
    compares = getattr(type(value), "__eq__", None) is not object.__eq__
    if value == read or value != value or not compares:
        return True
    return bool(names) and all(_kept(getattr(value, n), getattr(read, n)) for n in names)


def _of_model(value: Any) -> dict[str, Any]:
    """The fields of a pydantic model, without private attributes and cached properties."""
    given = vars(value)
    fields = {name: given[name] for name in type(value).model_fields if name in given}
    return fields | (value.model_extra or {})


def _field_names(value: Any) -> tuple[str, ...]:
    """The names of what a dataclass, a Struct or a class of attrs stores."""
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    attrs = getattr(type(value), "__attrs_attrs__", ())
    return tuple(getattr(type(value), "__dataclass_fields__", [one.name for one in attrs]))


def _odd_keys(value: Any) -> bool:
    """Return whether a dict in ``value`` has keys that are not text, which JSON would make text."""
    dicts = (part for level in levels(value) for part in level if isinstance(part, dict))
    return not all(isinstance(key, str) for one in dicts for key in one)


def _written_and_read(value: Any, hint: Any) -> tuple[Any, Any]:
    write = partial(msgspec.to_builtins, value, str_keys=True, enc_hook=_write_model)
    try:
        # a set has another order in each process, and equal arguments of a schedule must be alike
        written = write(order="deterministic")
    except TypeError:  # a set of several types
        written = write()
    return written, _read(written, hint)


def _read(value: Any, hint: Any) -> Any:
    return msgspec.convert(value, hint, dec_hook=_read_model, str_keys=True)


def _write_model(value: Any) -> Any:
    """Convert a pydantic model, although pydantic may not be installed. Fields may have aliases."""
    if isinstance(value, float):  # of a subclass, such as numpy's
        return float(value)
    if hasattr(value, "model_dump"):
        for by_alias in (True, False):
            written = value.model_dump(mode="json", by_alias=by_alias, round_trip=True)
            with suppress(ValueError):
                if _kept(value, type(value).model_validate(written)):
                    return written
        raise BadPayload(
            "the model does not come back from JSON as it is, for example because of a SecretStr"
        )
    raise BadPayload(
        f"a {type(value).__name__} has no form in JSON",
        do="Use a type that JSON or msgspec knows, or a pydantic model",
    )


def _read_model(kind: type, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        try:
            return kind.model_validate(value)
        except ValueError as error:  # its text repeats the value
            found = error.errors() if hasattr(error, "errors") else []
            why = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found]
            raise msgspec.ValidationError("; ".join(why)) from None
    if isinstance(value, get_origin(kind) or kind):  # such as Iterable[int]
        return value
    raise msgspec.ValidationError(f"a {kind.__name__} has no form in JSON")


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations. One that cannot be resolved, for example because its name is imported
    only for type checkers, counts as missing."""
    names = {**getattr(function, "__globals__", {}), **_enclosed(function)}
    found: dict[str, Any] = {}
    for name, hint in getattr(function, "__annotations__", {}).items():
        try:
            found |= get_type_hints(SimpleNamespace(__annotations__={name: hint}), names)
        except Exception:
            found[name] = Any
    return found


def _enclosed(function: Any) -> dict[str, Any]:
    """Return the names of enclosing functions that this one uses."""
    found = {}
    cells = getattr(function, "__closure__", None) or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=False):
        with suppress(ValueError):  # it has no value yet, as the function itself
            found[name] = cell.cell_contents
    return found


def _plain(hint: Any) -> bool:
    """Return whether JSON gives this type anyway."""
    origin = get_origin(hint)
    if origin is Literal:
        return True
    if origin is dict:  # JSON's keys are text
        key, value = get_args(hint) or (Any, Any)
        return key in (str, Any) and _plain(value)
    if origin in (list, Union, UnionType):
        return all(_plain(part) for part in get_args(hint))
    try:
        return hint in _PLAIN
    except TypeError:
        return False


def _without(hint: Any, outcomes: tuple[Any, ...]) -> Any:
    if get_origin(hint) in (Union, UnionType):
        return reduce(or_, [part for part in get_args(hint) if part not in outcomes] or [Any])
    return Any if hint in outcomes else hint
