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
    from leasework.app import App as App, SyncApp as SyncApp, Task as Task
    from leasework.app.advisory import AdvisoryLock as AdvisoryLock
    from leasework.app.deadlines import StandingDeadline as StandingDeadline
    from leasework.app.leader import Leader as Leader
    from leasework.app.lock import Lock as Lock
    from leasework.app.schedules import StoredSchedules as StoredSchedules
    from leasework.app.sync import (
        SyncAdvisoryLock as SyncAdvisoryLock,
        SyncJob as SyncJob,
        SyncLeader as SyncLeader,
        SyncLock as SyncLock,
        SyncSchedules as SyncSchedules,
        SyncStandingDeadline as SyncStandingDeadline,
    )
    from leasework.config import Limits as Limits, Polling as Polling, Retention as Retention
    from leasework.errors import LeaseworkError as LeaseworkError
    from leasework.jobs.client import Batch as Batch, Job as Job
    from leasework.jobs.context import (
        CallNext as CallNext,
        Context as Context,
        Middleware as Middleware,
        SyncContext as SyncContext,
    )
    from leasework.jobs.steps import Suspended as Suspended
    from leasework.lease.bids import Lost as Lost
    from leasework.model.backoff import Backoff as Backoff
    from leasework.model.codec import Codec as Codec
    from leasework.model.deadline import Deadline as Deadline, DueDeadline as DueDeadline
    from leasework.model.job import JobRecord as JobRecord, JobRequest as JobRequest
    from leasework.model.limits import Limit as Limit, Rate as Rate, Throttled as Throttled
    from leasework.model.moments import Duration as Duration
    from leasework.model.outcome import Cancel as Cancel, Discard as Discard, Snooze as Snooze
    from leasework.model.states import State as State
    from leasework.node import Node as Node
    from leasework.store.rows import StoredSchedule as StoredSchedule
    from leasework.watch.finding import Finding as Finding

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
_WHERE = dict(
    sorted(
        (name, f"leasework.{module}") for module in _MODULES for name in _MODULES[module].split()
    )
)

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    # loaded on first use, so that the command line starts without the driver
    if name not in _WHERE:
        raise AttributeError(f"module 'leasework' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
