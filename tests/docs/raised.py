"""Finds the errors that a function raises, in its source and in what it calls inside leasework."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from typing import Any

from leasework.errors import LeaseworkError

_DEPTH = 3
"""How many calls deep."""
GENERAL = ("located", "client", "store", "reports", "stores", "in_loop", "checked_timeout")
"""Calls that many functions make. The text of App says what they raise."""


@cache
def raised_by(function: Any, owner: Any = None, depth: int = _DEPTH) -> frozenset[type]:
    """``owner`` is the class of a method. A call on anything but ``self``, a module or a name of
    the module is not followed."""
    function = inspect.unwrap(function)
    found: set[type] = set()
    if function.__code__.co_filename[0] == "<":  # made by a decorator
        return frozenset()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Raise) and node.exc is not None:
            made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            value = _meant(made, function, owner)
            if inspect.isfunction(value):  # it makes the error
                value = _returned(value)
            if inspect.isclass(value) and issubclass(value, LeaseworkError):
                found.add(value)
        elif isinstance(node, ast.Call) and depth:
            value = _meant(node.func, function, owner)
            if inspect.isclass(value):
                value = vars(value).get("__post_init__") or vars(value).get("__init__")
            ours = inspect.isfunction(value) and value.__module__.startswith(("leasework", "tests"))
            if ours and value.__name__ not in GENERAL:
                found |= raised_by(value, owner if _is_own(node.func) else None, depth - 1)
    return frozenset(found)


def _is_own(call: ast.expr) -> bool:
    match call:
        case ast.Attribute(value=ast.Name(id="self")):
            return True
    return False


def _meant(node: ast.expr, function: Any, owner: Any) -> Any:
    match node:
        case ast.Name(id=name):
            return function.__globals__.get(name)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return inspect.getattr_static(owner, name, None) if owner else None
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            place = function.__globals__.get(module)
            return getattr(place, name, None) if inspect.ismodule(place) else None
    return None


def _returned(function: Any) -> Any:
    name = str(inspect.signature(function).return_annotation).rpartition(".")[2]
    return function.__globals__.get(name) or next(
        (kind for kind in _kinds(LeaseworkError) if kind.__name__ == name), None
    )


def _kinds(kind: type) -> list[type]:
    return [kind, *[one for below in kind.__subclasses__() for one in _kinds(below)]]


def not_in(doc: str, kinds: frozenset[type]) -> list[str]:
    """The errors that a text names neither itself nor by a base class."""

    def is_there(kind: type) -> bool:
        bases = [one for one in kind.__mro__ if issubclass(one, LeaseworkError)]
        return any(one.__name__ in doc for one in bases if one is not LeaseworkError)

    return sorted(one.__name__ for one in kinds - {LeaseworkError} if not is_there(one))
