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
    from leasehold.app import App, Task
    from leasehold.app.sync import SyncJob
    from leasehold.errors import LeaseholdError
    from leasehold.jobs.client import Job
    from leasehold.jobs.context import Context, SyncContext
    from leasehold.jobs.middleware import CallNext
    from leasehold.model.backoff import Backoff
    from leasehold.model.codec import Codec
    from leasehold.model.deadline import Deadline
    from leasehold.model.job import JobRecord, JobRequest
    from leasehold.model.outcome import Cancel, Discard, Snooze

__version__ = VERSION

_WHERE = {
    "App": "leasehold.app",
    "Task": "leasehold.app",
    "Backoff": "leasehold.model.backoff",
    "Codec": "leasehold.model.codec",
    "CallNext": "leasehold.jobs.middleware",
    "Cancel": "leasehold.model.outcome",
    "Deadline": "leasehold.model.deadline",
    "Context": "leasehold.jobs.context",
    "Discard": "leasehold.model.outcome",
    "Job": "leasehold.jobs.client",
    "JobRecord": "leasehold.model.job",
    "JobRequest": "leasehold.model.job",
    "LeaseholdError": "leasehold.errors",
    "Snooze": "leasehold.model.outcome",
    "SyncContext": "leasehold.jobs.context",
    "SyncJob": "leasehold.app.sync",
}

__all__ = [
    "App",
    "Backoff",
    "CallNext",
    "Cancel",
    "Codec",
    "Context",
    "Deadline",
    "Discard",
    "Job",
    "JobRecord",
    "JobRequest",
    "LeaseholdError",
    "Snooze",
    "SyncContext",
    "SyncJob",
    "Task",
]


def __getattr__(name: str) -> Any:
    # loaded on first use, so that the command line starts without the driver
    if name not in _WHERE:
        raise AttributeError(f"module 'leasehold' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
