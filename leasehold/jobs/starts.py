"""Whether this worker can start what its handlers run in: child processes and threads."""

from __future__ import annotations

import asyncio

from leasehold.config import Tuning
from leasehold.env import Env
from leasehold.model.outcome import Unable
from leasehold.telemetry import Emit


class Starts:
    """A job whose start failed goes back, and its attempt does not count: it is the worker that
    has no descriptor, memory or process left."""

    def __init__(self, env: Env, emit: Emit) -> None:
        self._env = env
        self._emit = emit
        self._error = ""
        self._at = 0.0

    @property
    def trouble(self) -> str:
        """Why nothing could be started lately; empty: it could. From any thread."""
        known = self._env.boot_now() - self._at < Tuning.no_start_known_seconds
        return self._error if known else ""

    async def failed(self, error: str) -> Unable:
        if not self.trouble:
            self._emit("process_not_started", error=error)
        self._error, self._at = error, self._env.boot_now()
        await asyncio.sleep(Tuning.no_start_seconds)
        return Unable(error)

    def succeeded(self) -> None:
        self._error = ""
