"""What must happen once per deployment: jobs whose unique keys name the release.

Each node of the release enqueues them when it joins; the key lets one through. As a job it
survives whoever enqueued it, and runs again when its worker is killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from leasehold.env import Env
from leasehold.loops.service import Service
from leasehold.model.job import JobRequest
from leasehold.ports import JobStore


class OncePerDeploy(Service):
    name = "once"

    def __init__(
        self, requests: Sequence[JobRequest], store: JobStore, env: Env, payload_limit: int
    ) -> None:
        self._jobs = [(env.new_id(), request) for request in requests]
        self._store = store
        self._payload_limit = payload_limit
        self._done = False

    async def tick(self, now: datetime | None) -> float:
        if not self._done:
            # the ids stay: a try with an unknown outcome can be repeated
            await self._store.enqueue(self._jobs, self._payload_limit, True, now)
            self._done = True
        return 3600.0
