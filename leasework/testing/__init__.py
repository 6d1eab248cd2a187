"""Helpers for tests of applications that use leasework, and a pytest plugin with fixtures.

Tests without an event loop import ``drain``, ``assert_enqueued`` and ``clear`` from
``leasework.testing.sync``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leasework.pg.users.rival import RivalSession as RivalSession
    from leasework.testing.asserting import assert_enqueued as assert_enqueued
    from leasework.testing.contexts import (
        FakeContext as FakeContext,
        FakeSyncContext as FakeSyncContext,
        context as context,
        sync_context as sync_context,
    )
    from leasework.testing.databases import (
        clear as clear,
        open_rival_session as open_rival_session,
        postgres_dsn as postgres_dsn,
    )
    from leasework.testing.immediate import eager as eager
    from leasework.testing.running import drain as drain, next_runs as next_runs

_MODULES = {
    "asserting": "assert_enqueued",
    "contexts": "FakeContext FakeSyncContext context sync_context",
    "databases": "RivalSession clear open_rival_session postgres_dsn",
    "immediate": "eager",
    "running": "drain next_runs",
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    # loaded on first use: every run of pytest imports the plugin, and this module with it
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
