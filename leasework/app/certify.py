"""Death certificates: a parent process reports to the database that its child process died."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import datetime
from typing import Self
from uuid import UUID

from leasework import own_tasks
from leasework.app.core import App
from leasework.config import Settings
from leasework.duties.leading import free_the_dead
from leasework.errors import ServerError, Unavailable
from leasework.loops.recorder import Recorder
from leasework.loops.service import Loop, Service
from leasework.store.store import Store
from leasework.tuning import Tuning

_IDLE_SECONDS = 3600.0


class Certifier(Service):
    """Writes a certificate for each reported death, one after the other, and frees the jobs of the
    dead nodes. Retries while the database is unavailable. Opens a connection only while there is
    something to write. Belongs to one event loop."""

    name = "certifier"

    def __init__(self, app: App, store: Store) -> None:
        self._app = app
        self._store = store
        self._deaths: deque[tuple[UUID, str]] = deque(maxlen=Tuning.certify_deaths)
        self._unfreed = False
        self._settled = asyncio.Event()
        """Set when nothing is left to write, or the server refuses."""
        self._settled.set()
        self._recorder = Recorder(app.env, store)
        self._loop = Loop(self, app.env, self._recorder.emit)

    @classmethod
    async def begin(cls, settings: Settings) -> Self:
        """Start a certifier. The database need not answer yet. Raises EmbeddedError if the
        embedded server cannot be started."""
        app = App(**vars(settings))
        certifier = cls(app, (await app.stores()).work)
        certifier._loop.start()
        return certifier

    def report(self, node: UUID, how: str) -> None:
        """Report that the process of this node, and its children, are dead. ``how`` it ended is
        shown to people. This changes nothing for a node that has stopped in order."""
        self._deaths.append((node, how))
        self._settled.clear()
        self._loop.wake()

    async def finish(self, seconds: float) -> bool:
        """Stop within ``seconds``. Return False if something was not written: then the leases
        expire."""
        await own_tasks.within(seconds, self._settled.wait())
        await self._loop.stop()
        await self._store.close()
        return not self._deaths and not self._unfreed

    async def tick(self, now: datetime | None) -> float:
        try:
            return await self._write(now)
        except ServerError:
            self._settled.set()
            raise

    async def _write(self, now: datetime | None) -> float:
        limits = self._app.settings.limits
        while self._deaths:
            await self._certify(*self._deaths[0])
            self._deaths.popleft()
        if self._unfreed:
            freed = await free_the_dead(self._store, limits, self._recorder.emit, now)
            if freed >= limits.batch_rows:
                return 0.0
            self._unfreed = False
        if await self._recorder.tick(now) == 0.0:
            return 0.0
        await self._store.close()
        if self._deaths:
            return 0.0
        self._settled.set()
        return _IDLE_SECONDS

    async def _certify(self, node: UUID, how: str) -> None:
        seconds = self._app.settings.call_timeout
        try:
            worker_id = await self._store.certify(node, seconds, process=True)
        except Unavailable:
            self._unfreed = True  # the certificate may have been written nevertheless
            raise
        if worker_id:
            self._unfreed = True
            self._recorder.emit("node_certified", dead=worker_id, how=how)
