"""LISTEN on the work connection, tested by notifications that the process sends to itself.

A process that can claim over this connection can also listen. Wake-ups are only faster than
polling: while they are not known to arrive, the services poll faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leasework import errors, own_tasks
from leasework.config import Settings
from leasework.env import Env
from leasework.model.moments import in_seconds
from leasework.store.store import Store
from leasework.telemetry import Emit
from leasework.tuning import Tuning

_POOLED = "connected through a pooler, which has no LISTEN: polling only"
_QUEUE_FULL = (
    "the server's notification queue is half full: a listening session has been in a transaction "
    "for a long time"
)


Handlers = Mapping[str, Callable[[str], None]]
"""What handles notifications, by their kind: ``q`` a queue has work, ``e`` an election is open,
``d`` a node died, ``c`` a node has a signal, ``s`` an application's schedules have changed, ``l`` a
lock is free and it is the turn of the named node (``node token seq name``). Each gets the subject.
``q`` without a subject: look at all queues."""


@dataclass(eq=False)
class Listener:
    """Calls its handlers in the event loop for the notifications of this schema's channel. Polling
    continues without it."""

    _settings: Settings
    _env: Env
    _store: Store
    _handlers: Handlers
    _emit: Emit

    def __post_init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self.healthy = False
        """A notification to ourselves arrived recently."""
        self.pooled = False
        """There is a pooler, through which no notification arrives: only polling works."""
        self._said = False
        """The event listen_lost was emitted, and wake-ups have not arrived since."""
        self._echo = ""
        self._arrived = asyncio.Event()
        """Set when the echo has arrived, or never will."""
        self._lost = asyncio.Event()
        """Set when the connection has ended."""
        self._due = asyncio.Event()
        """Set when the next test is due now, or the connection has ended."""

    def start(self) -> None:
        if self._settings.listen:
            self._task = own_tasks.start(self._run(), name="leasework-listen")

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._store.pool.unlisten(self._on_notification)

    def check(self) -> None:
        """Test now whether notifications arrive, if they did so far."""
        if self.healthy:
            self._due.set()

    async def _run(self) -> None:
        while not self.pooled:
            try:
                self._say(await self._listen())
            except errors.LeaseworkError as error:
                self._say(str(error))
            except Exception as error:  # nothing awaits this task: it must continue
                self._say(errors.told(error))
            finally:
                self.healthy = False
            await asyncio.sleep(self._env.jitter(Tuning.listen_retry_seconds, 0.25))

    def _say(self, why: str) -> None:
        if not self._said:
            self._emit("listen_lost", why=why)
        self._said = True

    async def _listen(self) -> str:
        """Listen until it fails, and return the reason."""
        self._lost.clear()
        facts = await self._store.pool.listen(self._on_notification)
        self.pooled = facts.pooled
        if self.pooled:
            self._said = False  # report this reason even after an earlier one
            return _POOLED
        return await self._test()

    async def _test(self) -> str:
        """Notify this process from time to time. When no echo arrives, return the reason."""
        call_timeout = self._settings.timings.call_timeout
        while not self._lost.is_set():
            self._due.clear()
            self._echo = str(self._env.new_id())
            self._arrived.clear()
            if not await self._store.notify(f"n:{self._echo}"):
                if self.healthy:
                    self.healthy = False
                    self._look_everywhere()  # from now on, poll faster
                self._say(_QUEUE_FULL)
                await self._pause(Tuning.listen_retry_seconds)
                continue
            if not await own_tasks.within(call_timeout, self._arrived.wait()):
                return "a test notification did not arrive"
            if not self.healthy and not self._lost.is_set():
                self.healthy, self._said = True, False
                self._emit("listen_works")
                self._look_everywhere()  # earlier wake-ups were missed
            check = in_seconds(self._settings.polling.listen_check)
            await self._pause(self._env.jitter(check, 0.2))
        return "the connection was lost"

    def _look_everywhere(self) -> None:
        """Look at all queues, if this process claims jobs at all."""
        if on_jobs := self._handlers.get("q"):
            on_jobs("")

    async def _pause(self, seconds: float) -> None:
        """Wait until the next test is due, at most ``seconds``."""
        await own_tasks.within(seconds, self._due.wait())

    def _on_notification(self, text: str | None) -> None:
        """Handle a notification, which any login of the database can send, with any text. None: the
        connection has ended."""
        if text is None:
            self._lost.set()
            self._due.set()
            self._arrived.set()
            return
        kind, _, subject = text.partition(":")
        if kind == "n":
            if subject == self._echo:
                self._arrived.set()
            return
        try:
            if kind in self._handlers:
                self._handlers[kind](subject)
        except Exception as error:
            self._emit("note_refused", note=text, error=errors.told(error))
