"""LISTEN on the work connection, tested by notifications to ourselves.

A wake-up lets its process claim, over this same connection: whenever the connection can claim, it
can hear. So listening costs no connection of its own.

Wake-ups are an accelerator: while they are not known to arrive, ``healthy`` is False and the
services poll faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from leasehold import errors, own
from leasehold.config import Settings
from leasehold.env import Env
from leasehold.pg.stores.store import PgStore
from leasehold.ports import Wake
from leasehold.telemetry import Emit

_RETRY_SECONDS = 2.0
_POOLED = "a pooler stands between: polling only"
_QUEUE_FULL = (
    "the server's queue of notifications is half full: some session listens and has been in a "
    "transaction for long"
)


class Listener:
    """``on_wake`` is called in the loop for each notification of this schema's channel."""

    def __init__(
        self,
        settings: Settings,
        env: Env,
        store: PgStore,
        on_wake: Callable[[Wake], None],
        emit: Emit,
    ) -> None:
        self._settings = settings
        self._env = env
        self._store = store
        self._pool = store.pool
        self._on_wake = on_wake
        self._emit = emit
        self._task: asyncio.Task[None] | None = None
        self._healthy = False
        self._pooled = False
        self._said = False
        """It was said that wake-ups do not arrive; once, until they do."""
        self._echo = ""
        self._heard = asyncio.Event()
        """The echo came, or never will."""
        self._lost = asyncio.Event()
        """The connection has ended."""

    @property
    def healthy(self) -> bool:
        return self._healthy

    @property
    def pooled(self) -> bool:
        return self._pooled

    def start(self) -> None:
        if self._settings.listen:
            self._task = own.start(self._run(), name="leasehold-listen")

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._pool.deafen(self._told)

    async def _run(self) -> None:
        while not self._pooled:
            try:
                self._say(await self._listen())
            except errors.LeaseholdError as error:
                self._say(str(error))
            except Exception as error:  # nobody looks at this task: it must go on
                self._say(errors.told(error))
            finally:
                self._healthy = False
            await asyncio.sleep(self._env.jitter(_RETRY_SECONDS, 0.25))

    def _say(self, why: str) -> None:
        if not self._said:
            self._emit("listen_lost", why=why)
        self._said = True

    async def _listen(self) -> str:
        """Why it cannot be done, or not any more."""
        self._lost.clear()
        facts = await self._pool.listen(self._told)
        self._pooled = facts.pooled
        if self._pooled:
            self._said = False  # whatever was said before, this is why
            return _POOLED
        return await self._test()

    async def _test(self) -> str:
        """Send ourselves a nonce now and then. Why wake-ups do not arrive any more."""
        while not self._lost.is_set():
            self._echo = str(self._env.new_id())
            self._heard.clear()
            if not await self._store.notify(f"n:{self._echo}"):
                self._healthy = False
                self._say(_QUEUE_FULL)
                await self._pause(_RETRY_SECONDS)
                continue
            try:
                async with asyncio.timeout(self._settings.timings.call_timeout):
                    await self._heard.wait()
            except TimeoutError:
                return "a notification to ourselves did not arrive"
            if not self._healthy and not self._lost.is_set():
                self._healthy, self._said = True, False
                self._emit("listen_works")
                self._on_wake(Wake("q"))  # of any queue: we were not told of any
            await self._pause(self._env.jitter(self._settings.polling.listen_check, 0.2))
        return "the connection was lost"

    async def _pause(self, seconds: float) -> None:
        """Until the connection is lost, or so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._lost.wait()

    def _told(self, text: str | None) -> None:
        """Any login of the database may send what it likes. None: the connection has ended."""
        if text is None:
            self._lost.set()
            self._heard.set()
            return
        kind, _, subject = text.partition(":")
        if kind == "n":
            if subject == self._echo:
                self._heard.set()
            return
        try:
            self._on_wake(Wake(kind, subject))
        except Exception as error:
            self._emit("note_refused", note=text, error=errors.told(error))
