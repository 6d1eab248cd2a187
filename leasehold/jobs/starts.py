"""Whether this worker can start what its handlers run in: child processes and threads."""

from __future__ import annotations

import asyncio

from leasehold.env import Env
from leasehold.model.outcome import Unable
from leasehold.telemetry import Emit

PAUSE_SECONDS = 1.0
"""For which a job that could not start keeps its slot: so few are claimed in vain."""
_KNOWN_SECONDS = 60.0
"""After so long without another try nobody knows whether it would work."""


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
        known = self._env.boot_now() - self._at < _KNOWN_SECONDS
        return self._error if known else ""

    async def failed(self, error: str) -> Unable:
        if not self.trouble:
            self._emit("process_not_started", error=error)
        self._error, self._at = error, self._env.boot_now()
        await asyncio.sleep(PAUSE_SECONDS)
        return Unable(error)

    def succeeded(self) -> None:
        self._error = ""
