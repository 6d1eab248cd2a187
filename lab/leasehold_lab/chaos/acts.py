"""What was done to whom and when, and whether it hit: the campaign's own account of its faults."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from leasehold.env import Env
from leasehold.errors import LeaseholdError
from leasehold_lab.chaos.fleet import Member
from leasehold_lab.chaos.history import Fault

ALL = "database"
"""The target of a fault that is everybody's."""


class Missed(Exception):
    """There was nothing that the fault could have hit: it excuses nobody, and does not count."""


class Acts:
    """``done``: the faults, in the order in which they began. ``errors``: what went wrong with a
    fault that is no matter of the database's."""

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
            fault.counted = False  # it may have hit all the same
            raise
        finally:
            fault.end = self._env.boot_now()
            if member:
                member.busy = False

    async def quietly(self, fault: Callable[[], Awaitable[None]]) -> None:
        """The campaign's own view of the database is hit by its faults as well."""
        try:
            await fault()
        except (LeaseholdError, CancelledError):
            return
        except Exception as error:
            self.errors.append(error)
