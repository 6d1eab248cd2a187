"""LISTEN on a connection of its own, tested by notifications to ourselves.

Wake-ups are an accelerator: while they are not known to arrive, ``healthy`` is False and the
services poll faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg

from leasehold import errors, own
from leasehold.config import Settings
from leasehold.env import Env
from leasehold.pg.connection.faults import translate
from leasehold.pg.connection.session import Session
from leasehold.pg.stores.store import PgStore
from leasehold.ports import Wake
from leasehold.telemetry import Emit

_RETRY_SECONDS = 2.0
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
        self._on_wake = on_wake
        self._emit = emit
        self._task: asyncio.Task[None] | None = None
        self._healthy = False
        self._pooled = False
        self._said = False
        """It was said that wake-ups do not arrive; once, until they do."""
        self._echo = ""
        self._heard = asyncio.Event()

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

    def _lost(self, why: str) -> None:
        if not self._said:
            self._emit("listen_lost", why=why)
        self._said = True

    async def _run(self) -> None:
        while True:
            try:
                session = await Session.open(self._settings, "listen")
                try:
                    self._pooled = session.facts.pooled
                    if self._pooled:
                        self._emit("listen_lost", why="a pooler stands between: polling only")
                        return
                    await self._listen(session)
                finally:
                    self._healthy = False
                    session.shut()
                    await session.close()
            except errors.LeaseholdError as error:
                self._lost(str(error))
            except Exception as error:  # nobody looks at this task: it must go on
                self._lost(errors.told(error))
            await asyncio.sleep(self._env.jitter(_RETRY_SECONDS, 0.25))

    async def _listen(self, session: Session) -> None:
        connection = session.connection
        try:
            await connection.execute(f"listen {self._settings.schema}".encode())
            tester = own.start(self._test(session))
            try:
                await connection.hear(self._told)
            finally:
                tester.cancel()
        except (psycopg.Error, OSError) as error:
            raise translate(error, sent=False) from error

    def _told(self, note: str) -> None:
        """Any login of the database may send what it likes."""
        kind, _, subject = note.partition(":")
        if kind == "n":
            if subject == self._echo:
                self._heard.set()
            return
        try:
            self._on_wake(Wake(kind, subject))
        except Exception as error:
            self._emit("note_refused", note=note, error=errors.told(error))

    async def _test(self, session: Session) -> None:
        """Send ourselves a nonce now and then; if it does not come, cut the connection."""
        while True:
            self._echo = str(self._env.new_id())
            self._heard.clear()
            try:
                if not await self._store.notify(f"n:{self._echo}"):
                    self._lost(_QUEUE_FULL)
                    self._healthy = False
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                async with asyncio.timeout(self._settings.timings.call_timeout):
                    await self._heard.wait()
            except errors.LeaseholdError:
                # the database is away: whoever works on it says so
                self._healthy = False
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            except TimeoutError:
                self._lost("a notification to ourselves did not arrive")
                session.shut()
                return
            if not self._healthy:
                self._healthy, self._said = True, False
                self._emit("listen_works")
                self._on_wake(Wake("q"))  # of any queue: we were not told of any
            await asyncio.sleep(self._env.jitter(self._settings.polling.listen_check, 0.2))
