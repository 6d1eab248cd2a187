"""Between the processes and the database: calls that are slow, fail, are answered too late or
never, or take effect after they were given up; notifications that are late, lost or doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, cast

from leasehold.env import Rng
from leasehold.errors import LeaseholdError, QueryFailed, Unavailable
from leasehold.ports import Store, Wake
from leasehold.sim.loop import PLACE, VirtualLoop
from leasehold.sim.store import SimStore

_TIMEOUT_AT = {"heartbeat": 6, "acquire": 4, "resign": 2, "certify": 1, "place_bid": 3}
"""Which argument of a guard's call is its timeout."""
_UNDER_WAY_SECONDS = 0.5
NEVER_LATE = ("copy",)
"""What is not carried out when its caller gave up before it arrived: its COMMIT is a message of
its own, sent only by a caller who was told that the rows are in."""


@dataclass(slots=True)
class Weather:
    """What calls meet; probabilities for each call, seconds for each way."""

    latency: float = 0.002
    refused: float = 0.0
    """Never sent."""
    request_lost: float = 0.0
    answer_lost: float = 0.0
    slow: float = 0.0
    """A way takes up to ``slow_seconds``: longer than anybody waits, it may be."""
    slow_seconds: float = 9.0
    wake_lost: float = 0.0
    wake_doubled: float = 0.0
    wake_late: float = 0.0


Observer = Callable[[str, tuple[Any, ...], Any], None]
"""Told of each statement that was carried out: its name, its arguments, its answer."""


class Server:
    """The database's side. ``up`` false: whoever asks is refused, what is under way is lost."""

    def __init__(self, loop: VirtualLoop, store: SimStore, observe: Observer) -> None:
        self.loop = loop
        self.store = store
        self.up = True
        self.calm_from = float("inf")
        """When the faults stopped: what was sent before is not under way for longer than the
        latency of a bad day."""
        self.context = copy_context()
        self.statements = 0
        self._observe = observe

    def execute(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out one statement, now and whole."""
        self.statements += 1
        work: Coroutine[Any, Any, Any] = getattr(self.store, name)(*args, **kwargs)
        try:
            work.send(None)
        except StopIteration as end:
            self._observe(name, args, end.value)
            return end.value
        raise QueryFailed("a statement of the simulated database waited", got=name)


@dataclass
class Link:
    """One process's way to the database. ``cut``: empty, ``requests``, ``answers`` or ``both``."""

    server: Server
    rng: Rng
    weather: Weather
    cut: str = ""
    closed: bool = False
    unknown: int = 0
    """Calls whose outcome the caller was not told."""
    wakeups: list[SimWakeups] = field(default_factory=list)

    def way(self) -> float:
        """How long one way takes, in seconds."""
        if self.weather.slow and self.rng.random() < self.weather.slow:
            return self.rng.random() * self.weather.slow_seconds
        return self.weather.latency * (0.5 + self.rng.random())

    def loses(self, share: float, direction: str) -> bool:
        return self.cut in (direction, "both") or (share > 0 and self.rng.random() < share)

    def send(
        self, act: Callable[[], Any], seconds: float, *, never_late: bool = False
    ) -> asyncio.Future[Any]:
        """Ask for ``act`` at the server; the answer, or Unavailable after ``seconds``."""
        server, weather, loop = self.server, self.weather, self.server.loop
        mine = copy_context()
        answer: asyncio.Future[Any] = loop.create_future()
        if self.closed or not server.up or (weather.refused and self.loses(weather.refused, "")):
            error = Unavailable("the database cannot be reached", sent=False)
            loop.call_later(self.way(), _settle, answer, None, error)
            return answer
        late = Unavailable(f"the database did not answer within {seconds:.3g} s", sent=True)
        timer = loop.call_later(max(seconds, 0.001), self._give_up, answer, late)
        answer.add_done_callback(lambda _: timer.cancel())
        if not self.loses(weather.request_lost, "requests"):
            args = (act, answer, mine, never_late, loop.time())
            loop.call_later(self.way(), self._arrive, *args, context=server.context)
        return answer

    def _give_up(self, answer: asyncio.Future[Any], error: Unavailable) -> None:
        if not answer.done():
            self.unknown += 1
        _settle(answer, None, error)

    def _arrive(
        self,
        act: Callable[[], Any],
        answer: asyncio.Future[Any],
        mine: Context,
        never_late: bool,
        sent_at: float,
    ) -> None:
        server = self.server
        lost = sent_at < server.calm_from < server.loop.time() - _UNDER_WAY_SECONDS
        if lost or not server.up or (never_late and answer.done()):
            return
        result, error = None, None
        try:
            result = act()
        except LeaseholdError as refused:
            error = refused
        if not self.loses(self.weather.answer_lost, "answers"):
            server.loop.call_later(self.way(), _settle, answer, result, error, context=mine)


def _settle(answer: asyncio.Future[Any], result: Any, error: LeaseholdError | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
        answer.exception()  # nobody may be there to take it


class FaultyStore:
    """A Store over a link, with one connection: calls wait their turn."""

    def __init__(self, link: Link, call_timeout: float) -> None:
        self._link = link
        self._call_timeout = call_timeout
        self._turn = asyncio.Semaphore(1)

    @classmethod
    def over(cls, link: Link, call_timeout: float) -> Store:
        return cast(Store, cls(link, call_timeout))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(SimStore, name):
            raise AttributeError(name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._call(name, args, kwargs)

        setattr(self, name, call)
        return call

    async def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seconds = self._call_timeout
        if name in _TIMEOUT_AT:
            seconds = args[_TIMEOUT_AT[name]]
        if self._turn.locked():
            seconds -= await self._wait(seconds)
        else:
            await self._turn.acquire()
        execute = self._link.server.execute
        answer = self._link.send(
            lambda: execute(name, args, kwargs), seconds, never_late=name in NEVER_LATE
        )
        # a caller that is cancelled leaves its call to go on: the turn ends with the answer
        answer.add_done_callback(lambda _: self._turn.release())
        return await asyncio.shield(answer)

    async def _wait(self, seconds: float) -> float:
        loop = self._link.server.loop
        began = loop.time()
        try:
            async with asyncio.timeout(seconds):
                await self._turn.acquire()
        except TimeoutError:
            raise Unavailable(f"no connection was free within {seconds:.3g} s") from None
        return loop.time() - began

    def shut(self) -> None:
        """As closing the sockets: the next calls are refused."""

    async def close(self) -> None:
        """Nothing is open."""


class SimWakeups:
    """Notifications over a link; ``healthy`` as long as it is not cut."""

    def __init__(self, link: Link, on_wake: Callable[[Wake], None]) -> None:
        self._link = link
        self._on_wake = on_wake
        self._context = copy_context()
        link.wakeups.append(self)

    def start(self) -> None:
        """Listens from the beginning."""

    async def stop(self) -> None:
        self._link.wakeups.remove(self)

    @property
    def healthy(self) -> bool:
        return not self._link.cut and self._link.server.up

    def deliver(self, message: str) -> None:
        """One notification is on its way."""
        link, weather = self._link, self._link.weather
        copies = 1 + (link.rng.random() < weather.wake_doubled)
        for _ in range(copies):
            if link.loses(weather.wake_lost, "answers"):
                continue
            late = link.rng.random() < weather.wake_late
            seconds = link.rng.random() * 5 if late else link.way()
            kind, _, subject = message.partition(":")
            loop = link.server.loop
            loop.call_later(seconds, self._on_wake, Wake(kind, subject), context=self._context)


def here() -> Any:
    """Whose code runs: the owner of the present place."""
    place = PLACE.get()
    return place.owner if place else None
