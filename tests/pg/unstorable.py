"""Handlers whose results cannot be stored, for all executors: a child process imports this."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def _loop() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


RESULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "an object": (object, "a value of type object that cannot be stored: result of t: not JSON"),
    "NUL": (lambda: {"a": "\x00"}, "result of t: text with a NUL"),
    "a surrogate": (lambda: "\ud800", "a lone surrogate"),
    "NaN": (lambda: float("nan"), "not JSON"),
    "itself": (_loop, "result of t"),
    "too deep": (lambda: json.loads("[" * 300 + "]" * 300), "nested deeper than 200"),
    "too large": (lambda: "x" * (1 << 20), "over the limit of 1048576"),
}
"""What is returned, and what the error says of it."""


def now(what: str = "", file: str = "") -> Any:
    with open(file, "a") as journal:
        journal.write(what + "\n")
    return RESULTS[what][0]() if what else 1


async def later(what: str = "", file: str = "") -> Any:
    return now(what, file)
