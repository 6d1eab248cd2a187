"""Enqueues what must run once per deployment, under unique keys that name the release (ADR 8)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from leasework.loops.service import Service, ServiceContext
from leasework.model.job import JobRequest


class OncePerDeploy(Service):
    name = "once"

    def __init__(self, context: ServiceContext, requests: Sequence[JobRequest[Any]]) -> None:
        super().__init__(context)
        self._users = context.users
        self._jobs = [(self._env.new_id(), request) for request in requests]
        self._done = False

    async def tick(self, now: datetime | None) -> float:
        if not self._done:
            # with the same ids, so that a try with an unknown result can be repeated
            await self._users.enqueue(self._jobs, self._settings.payload_limit, True, now)
            self._done = True
        return 3600.0
