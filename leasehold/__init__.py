"""leasehold: run every scheduled task and background job once across all processes of an
application, on the PostgreSQL that it already has.

    from leasehold import App, Context

    app = App()

    @app.task()
    async def send_email(ctx: Context, to: str) -> None: ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from leasehold.version import VERSION

if TYPE_CHECKING:
    from leasehold.app import App, SyncApp, Task
    from leasehold.app.advisory import AdvisoryLock
    from leasehold.app.deadlines import StandingDeadline
    from leasehold.app.diagnosis import Diagnosis
    from leasehold.app.leader import Leader
    from leasehold.app.lock import Lock
    from leasehold.app.schedules import StoredSchedules
    from leasehold.app.sync import (
        SyncAdvisoryLock,
        SyncJob,
        SyncLeader,
        SyncLock,
        SyncSchedules,
        SyncStandingDeadline,
    )
    from leasehold.config import Limits, Polling, Retention
    from leasehold.errors import LeaseholdError
    from leasehold.jobs.client import Job
    from leasehold.jobs.context import CallNext, Context, Middleware, SyncContext
    from leasehold.lease.bids import Lost
    from leasehold.model.backoff import Backoff
    from leasehold.model.codec import Codec
    from leasehold.model.deadline import Deadline, DueLevel
    from leasehold.model.job import JobRecord, JobRequest
    from leasehold.model.moments import Duration
    from leasehold.model.outcome import Cancel, Discard, Snooze
    from leasehold.model.states import State
    from leasehold.node import Node
    from leasehold.ports import StoredSchedule
    from leasehold.watch.finding import Finding

__version__ = VERSION

_MODULES = {
    "app": "App SyncApp Task",
    "app.advisory": "AdvisoryLock",
    "app.deadlines": "StandingDeadline",
    "app.diagnosis": "Diagnosis",
    "app.leader": "Leader",
    "app.lock": "Lock",
    "app.schedules": "StoredSchedules",
    "app.sync": "SyncAdvisoryLock SyncJob SyncLeader SyncLock SyncSchedules SyncStandingDeadline",
    "config": "Limits Polling Retention",
    "errors": "LeaseholdError",
    "jobs.client": "Job",
    "jobs.context": "CallNext Context Middleware SyncContext",
    "lease.bids": "Lost",
    "model.backoff": "Backoff",
    "model.codec": "Codec",
    "model.deadline": "Deadline DueLevel",
    "model.job": "JobRecord JobRequest",
    "model.moments": "Duration",
    "model.outcome": "Cancel Discard Snooze",
    "model.states": "State",
    "node": "Node",
    "ports": "StoredSchedule",
    "watch.finding": "Finding",
}
_WHERE = {
    name: f"leasehold.{module}" for module, names in _MODULES.items() for name in names.split()
}

__all__ = [
    "AdvisoryLock",
    "App",
    "Backoff",
    "CallNext",
    "Cancel",
    "Codec",
    "Context",
    "Deadline",
    "Diagnosis",
    "Discard",
    "DueLevel",
    "Duration",
    "Finding",
    "Job",
    "JobRecord",
    "JobRequest",
    "Leader",
    "LeaseholdError",
    "Limits",
    "Lock",
    "Lost",
    "Middleware",
    "Node",
    "Polling",
    "Retention",
    "Snooze",
    "StandingDeadline",
    "State",
    "StoredSchedule",
    "StoredSchedules",
    "SyncAdvisoryLock",
    "SyncApp",
    "SyncContext",
    "SyncJob",
    "SyncLeader",
    "SyncLock",
    "SyncSchedules",
    "SyncStandingDeadline",
    "Task",
]


def __getattr__(name: str) -> Any:
    # loaded on first use, so that the command line starts without the driver
    if name not in _WHERE:
        raise AttributeError(f"module 'leasehold' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
