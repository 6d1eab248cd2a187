"""What ``from leasework import …`` offers. It is loaded with the first of these names."""

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
from leasework.cells import Cells as Cells
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
