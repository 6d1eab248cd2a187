"""Helpers for tests of applications that use leasework, and a pytest plugin with fixtures.

Tests without an event loop import ``drain``, ``assert_enqueued`` and ``clear`` from
``leasework.testing.sync``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leasework.testing.exports import *  # noqa: F403


def __getattr__(name: str) -> Any:
    # loaded on first use: every run of pytest imports the plugin, and this module with it
    if name == "__all__" or name[:1].isalpha():
        offered = vars(import_module("leasework.testing.exports"))
        if name == "__all__":
            return [each for each in offered if each[:1].isalpha()]
        if name in offered:
            return offered[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))
