"""The campaign's own record of its faults: what hit which process, and when."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from leasework.env import Env
from leasework.errors import LeaseworkError
from leasework_lab.chaos.fleet import Member
from leasework_lab.chaos.history import Fault

ALL = "database"
"""The target of a fault that affects all processes."""


class Missed(Exception):
    """The fault hit nothing: it excuses nothing, and does not count."""


class Acts:
    """``done``: the faults, in the order in which they began. ``errors``: failures of faults that
    the database did not cause."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self.done: list[Fault] = []
        self.errors: list[Exception] = []

    @asynccontextmanager
    async def acting(
        self, kind: str, member: Member | None, words: str = ""
    ) -> AsyncIterator[Fault]:
        now = self._env.boot_now()
        fault = Fault(kind, member.name if member else ALL, now, float("inf"), words)
        self.done.append(fault)
        if member:
            member.busy = True
        try:
            yield fault
        except Missed:
            self.done.remove(fault)
        except Exception:
            fault.counted = False  # it may have hit something anyway
            raise
        finally:
            fault.end = self._env.boot_now()
            if member:
                member.busy = False

    async def quietly(self, fault: Callable[[], Awaitable[None]]) -> None:
        """Run a fault. Its own calls to the database may fail, because other faults hit it too."""
        try:
            await fault()
        except (LeaseworkError, CancelledError):
            return
        except Exception as error:
            self.errors.append(error)
