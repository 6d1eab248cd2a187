"""Helpers for tests of applications that use leasework, and a pytest plugin with fixtures.

In pytest.ini, name the application:

    [pytest]
    leasework_app = shop:app

In a test:

    from leasework.testing import assert_enqueued, drain

    async def test_signing_up_sends_a_mail(leasework_app):   # on a fresh database
        await sign_up("kim@example.org")
        await assert_enqueued(leasework_app, send_mail, to="kim@example.org")
        [record] = await drain(leasework_app)                # run the waiting jobs here
        assert record.state == "completed"

Tests without an event loop import both from ``leasework.testing.sync``. For tests without a
database there are :func:`eager` and :func:`context`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leasework.pg.users.rival import RivalSession
    from leasework.testing.asserting import assert_enqueued
    from leasework.testing.contexts import FakeContext, FakeSyncContext, context, sync_context
    from leasework.testing.databases import clear, open_rival_session, postgres_dsn
    from leasework.testing.immediate import eager
    from leasework.testing.running import drain, next_runs

_MODULES = {
    "asserting": "assert_enqueued",
    "contexts": "FakeContext FakeSyncContext context sync_context",
    "databases": "RivalSession clear open_rival_session postgres_dsn",
    "immediate": "eager",
    "running": "drain next_runs",
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "FakeContext",
    "FakeSyncContext",
    "RivalSession",
    "assert_enqueued",
    "clear",
    "context",
    "drain",
    "eager",
    "next_runs",
    "open_rival_session",
    "postgres_dsn",
    "sync_context",
]


def __getattr__(name: str) -> Any:
    # loaded on first use: every run of pytest imports the plugin, and this module with it
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
