"""Whether this worker can start child processes and threads for its handlers, and the lifespan in
such a process."""

from __future__ import annotations

import asyncio

from leasehold.env import Env
from leasehold.model.outcome import Unable
from leasehold.telemetry import Emit
from leasehold.tuning import Tuning


class Starts:
    """Handles failed starts. The job goes back and its attempt does not count, because its handler
    is not at fault: the worker has no descriptor, memory or process left, or the lifespan fails."""

    def __init__(self, env: Env, emit: Emit) -> None:
        self._env = env
        self._emit = emit
        self._error = ""
        self._at = 0.0

    @property
    def trouble(self) -> str:
        """Why a recent start failed; empty if none did. Can be read from any thread."""
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
