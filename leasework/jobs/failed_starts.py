"""Whether this worker can start child processes and threads for its handlers."""

from __future__ import annotations

import asyncio

from leasework.env import Env
from leasework.model.outcome import Unable
from leasework.telemetry import Emit
from leasework.tuning import Tuning


class Starts:
    """Handles failed starts. The job goes back and its attempt does not count, because its handler
    is not at fault: the worker has no descriptor, memory or process left."""

    def __init__(self, env: Env, emit: Emit) -> None:
        self._env = env
        self._emit = emit
        self._errors: dict[str, tuple[str, float]] = {}
        """By what was started: the last error, and when."""

    @property
    def trouble(self) -> str:
        """Why a recent start failed; empty if none did. Can be read from any thread."""
        return next(filter(None, map(self._recent, list(self._errors))), "")

    def _recent(self, what: str) -> str:
        error, at = self._errors.get(what, ("", 0.0))
        return error if self._env.boot_now() - at < Tuning.no_start_known_seconds else ""

    async def failed(self, what: str, error: str) -> Unable:
        """``what``: ``thread`` or ``process``."""
        if not self._recent(what):
            self._emit("process_not_started", error=error)
        self._errors[what] = error, self._env.boot_now()
        await asyncio.sleep(Tuning.no_start_seconds)
        return Unable(error)

    def succeeded(self, what: str) -> None:
        self._errors.pop(what, None)
