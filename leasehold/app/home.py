"""What an App is to its parts: settings, environment, and ways to the database and to the guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol
from uuid import UUID

from leasehold.config import Settings
from leasehold.env import Env
from leasehold.jobs.client import Client, Job
from leasehold.jobs.tasks import Registry
from leasehold.lease.guard import Guard
from leasehold.model.job import JobRecord, JobRequest
from leasehold.model.lock_key import LockKey
from leasehold.pg.stores.store import PgStore
from leasehold.pg.users.user import UserConnections
from leasehold.watch.operator import Operator


class Guards(Protocol):
    """Lends the guard that renews this process's leases; give back what was taken."""

    async def take(self, *, leader: bool) -> Guard: ...

    def give_back(self, guard: Guard) -> None: ...


class Home(Protocol):
    """The parts of an App know it by this alone, so that none of them imports it."""

    settings: Settings
    env: Env
    registry: Registry
    on_connection: UserConnections
    _locks_work: bool

    @property
    def desk(self) -> Guards: ...

    async def located(self) -> Settings: ...

    async def store(self) -> PgStore: ...

    async def client(self) -> Client: ...

    async def operator(self, who: str, via: str) -> Operator: ...

    async def enqueue(self, request: JobRequest, *, on: Any = None) -> Job[Any]: ...

    async def enqueue_many(
        self, requests: Iterable[JobRequest], *, on: Any = None
    ) -> list[Job[Any]]: ...

    async def get(self, job: UUID | str) -> JobRecord: ...

    async def jobs(self, **filters: Any) -> list[JobRecord]: ...

    async def cancel(self, job: UUID | str, reason: str = "cancelled") -> bool: ...

    async def retry(self, job: UUID | str) -> bool: ...

    @property
    def deadline(self) -> Callable[..., Any]: ...

    @property
    def advisory_lock(self) -> Callable[..., Any]: ...

    async def close(self) -> None: ...

    async def _note_lock(self, key: LockKey) -> None: ...

    async def _record(self, kind: str, fields: dict[str, Any]) -> None: ...
