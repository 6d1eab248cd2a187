"""``drain``, ``assert_enqueued`` and ``clear`` as plain functions, for tests without an event
loop."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from leasework.app import App, Task
from leasework.errors import NotEnqueued
from leasework.model.job import JobRecord
from leasework.model.moments import Duration
from leasework.testing import asserting, databases, running


def drain(
    app: App,
    *,
    queues: Mapping[str, int] | None = None,
    timeout: Duration = 30.0,
    until: datetime | timedelta | None = None,
) -> list[JobRecord]:
    """Run all available jobs. See :func:`leasework.testing.drain`. Also raises ConfigError inside
    Django's ``transaction.atomic``, and so in a ``TestCase``: it sees only what is committed."""
    databases.refuse_uncommitted(app, "drain")
    return app.sync.call(running.drain(app, queues=queues, timeout=timeout, until=until))


def assert_enqueued(app: App, task: Task[Any, Any] | str, /, **arguments: Any) -> JobRecord:
    """See :func:`leasework.testing.assert_enqueued`, and for a ``TestCase`` :func:`drain`."""
    __tracebackhide__ = True  # pytest shows the line of the test
    databases.refuse_uncommitted(app, "assert_enqueued")
    try:
        return app.sync.call(asserting.assert_enqueued(app, task, **arguments))
    except NotEnqueued as error:
        raise error.with_traceback(None) from None


def clear(app: App) -> None:
    """Empty the database, and close the connections of ``app.sync``. See
    :func:`leasework.testing.clear`."""
    app.sync.call(databases.clear(app))
