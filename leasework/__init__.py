"""leasework: run every scheduled task and background job once across all processes of an
application, on the PostgreSQL that it already has.

    from leasework import App, Context

    app = App()

    @app.task()
    async def send_email(ctx: Context, to: str) -> None: ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from leasework.version import VERSION

if TYPE_CHECKING:
    from leasework.app import App, SyncApp, Task
    from leasework.app.advisory import AdvisoryLock
    from leasework.app.deadlines import StandingDeadline
    from leasework.app.leader import Leader
    from leasework.app.lock import Lock
    from leasework.app.schedules import StoredSchedules
    from leasework.app.sync import (
        SyncAdvisoryLock,
        SyncJob,
        SyncLeader,
        SyncLock,
        SyncSchedules,
        SyncStandingDeadline,
    )
    from leasework.config import Limits, Polling, Retention
    from leasework.errors import LeaseworkError
    from leasework.jobs.client import Batch, Job
    from leasework.jobs.context import CallNext, Context, Middleware, SyncContext
    from leasework.jobs.steps import Suspended
    from leasework.lease.bids import Lost
    from leasework.model.backoff import Backoff
    from leasework.model.codec import Codec
    from leasework.model.deadline import Deadline, DueDeadline
    from leasework.model.job import JobRecord, JobRequest
    from leasework.model.limits import Limit, Rate, Throttled
    from leasework.model.moments import Duration
    from leasework.model.outcome import Cancel, Discard, Snooze
    from leasework.model.states import State
    from leasework.node import Node
    from leasework.store.rows import StoredSchedule
    from leasework.watch.finding import Finding

__version__ = VERSION

_MODULES = {
    "app": "App SyncApp Task",
    "app.advisory": "AdvisoryLock",
    "app.deadlines": "StandingDeadline",
    "app.leader": "Leader",
    "app.lock": "Lock",
    "app.schedules": "StoredSchedules",
    "app.sync": "SyncAdvisoryLock SyncJob SyncLeader SyncLock SyncSchedules SyncStandingDeadline",
    "config": "Limits Polling Retention",
    "errors": "LeaseworkError",
    "jobs.client": "Batch Job",
    "jobs.context": "CallNext Context Middleware SyncContext",
    "jobs.steps": "Suspended",
    "lease.bids": "Lost",
    "model.backoff": "Backoff",
    "model.codec": "Codec",
    "model.deadline": "Deadline DueDeadline",
    "model.job": "JobRecord JobRequest",
    "model.limits": "Limit Rate Throttled",
    "model.moments": "Duration",
    "model.outcome": "Cancel Discard Snooze",
    "model.states": "State",
    "node": "Node",
    "store.rows": "StoredSchedule",
    "watch.finding": "Finding",
}
_WHERE = {
    name: f"leasework.{module}" for module, names in _MODULES.items() for name in names.split()
}

__all__ = [
    "AdvisoryLock",
    "App",
    "Backoff",
    "Batch",
    "CallNext",
    "Cancel",
    "Codec",
    "Context",
    "Deadline",
    "Discard",
    "DueDeadline",
    "Duration",
    "Finding",
    "Job",
    "JobRecord",
    "JobRequest",
    "Leader",
    "LeaseworkError",
    "Limit",
    "Limits",
    "Lock",
    "Lost",
    "Middleware",
    "Node",
    "Polling",
    "Rate",
    "Retention",
    "Snooze",
    "StandingDeadline",
    "State",
    "StoredSchedule",
    "StoredSchedules",
    "Suspended",
    "SyncAdvisoryLock",
    "SyncApp",
    "SyncContext",
    "SyncJob",
    "SyncLeader",
    "SyncLock",
    "SyncSchedules",
    "SyncStandingDeadline",
    "Task",
    "Throttled",
]


def __getattr__(name: str) -> Any:
    # loaded on first use, so that the command line starts without the driver
    if name not in _WHERE:
        raise AttributeError(f"module 'leasework' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
