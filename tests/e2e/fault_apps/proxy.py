"""The fault proxy of the package, in a thread of its own, for tests without a loop."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

from leasework_lab.chaos.proxy import FaultProxy, Loss

__all__ = ["Loss", "Proxy"]


class Proxy:
    """``with Proxy(dsn) as link``: ``link.dsn`` goes through it to ``dsn``."""

    def __init__(self, dsn: str) -> None:
        self._target = dsn
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def dsn(self) -> str:
        return self._proxy.dsn

    def lose(self, text: str, times: int, chance: float = 1.0, *, rows: bool = True) -> Loss:
        """Answers to statements that contain ``text``."""
        loss = Loss(text, times, chance, rows)
        self._proxy.losses.append(loss)
        return loss

    def __enter__(self) -> Proxy:
        self._thread.start()
        assert self._up.wait(60), "the proxy did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.run(self._main())  # cancels what is left of the links

    async def _main(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._proxy = FaultProxy(self._target)
        async with self._proxy:
            self._up.set()
            await self._end.wait()
