"""Assertions about jobs."""

from __future__ import annotations

import json
from typing import Any

from leasework.app import App, Task
from leasework.config import Limits
from leasework.errors import NotEnqueued, shorten
from leasework.model.job import JobRecord, encode
from leasework.testing.databases import refuse_uncommitted_async

_SHOWN = 20
"""The most jobs that a failing assertion lists."""


async def assert_enqueued(app: App, task: Task[Any, Any] | str, /, **arguments: Any) -> JobRecord:
    """Assert that a job of ``task`` with (at least) these arguments was enqueued, whatever its
    state. Return the newest such job. Searches the 10,000 newest jobs of the task. Raises
    NotEnqueued, an AssertionError, and BadPayload for arguments that do not fit::

        record = await assert_enqueued(app, send_mail, to="kim@example.org")
        assert record.queue == "mail"
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    await refuse_uncommitted_async(app, "assert_enqueued")
    name = task if isinstance(task, str) else task.name
    function = app.registry.find(name)
    written = function.values.write(arguments) if function else arguments
    # as the database returns them
    wanted = json.loads(encode(f"arguments of {name}", written, Limits.payload_bytes))
    records = await app.jobs(task=name, limit=10_000)
    for record in records:
        payload = record.payload if isinstance(record.payload, dict) else {}
        if all(key in payload and payload[key] == value for key, value in wanted.items()):
            return record
    seen = "; ".join(shorten(json.dumps(r.payload, default=str)) for r in records[:_SHOWN])
    where = f"in the database {app.test_database}, " if app.test_database else ""
    raise NotEnqueued(
        f"{where}no job of {name} has the arguments {json.dumps(wanted)}",
        got=f"{len(records)} with other arguments: {seen}" if records else "none at all",
        do="Compare the arguments, and the database of the session that the code under test passes "
        "as on=",
    )
