"""The link between processes and the database. Calls are slow, fail, are answered late or never, or
take effect after the caller gave up; notifications are late, lost or doubled."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, cast

from leasework.env import Rng
from leasework.errors import LeaseworkError, QueryFailed, Unavailable
from leasework.store.listener import Handlers, Listener
from leasework.store.store import Store
from leasework_lab.sim.loop import VirtualLoop
from leasework_lab.sim.store import SimStore

_UNDER_WAY_SECONDS = 0.5
_NEVER = float("inf")
NEVER_LATE = ("copy",)
"""Statements that are not executed if their caller gave up before they arrived: their COMMIT is a
separate message, sent only by a caller who was told that the rows are in."""


@dataclass(slots=True)
class Weather:
    """The conditions for calls: probabilities per call, and seconds per direction."""

    latency: float = 0.002
    refused: float = 0.0
    """Not even sent."""
    request_lost: float = 0.0
    answer_lost: float = 0.0
    slow: float = 0.0
    """One direction takes up to ``slow_seconds``, which may exceed every timeout."""
    slow_seconds: float = 9.0
    wake_lost: float = 0.0
    wake_doubled: float = 0.0
    wake_late: float = 0.0


Observer = Callable[[str, tuple[Any, ...], Any, str], None]
"""Called after a statement was executed, with its name, arguments and answer, and its caller."""


class Server:
    """The database's side. ``up`` False: requests are refused, and those in progress are lost."""

    def __init__(self, loop: VirtualLoop, store: SimStore, observe: Observer) -> None:
        self.loop = loop
        self.store = store
        self.up = True
        self.calm_from = float("inf")
        """When the faults stopped. Requests sent before it are not on their way for longer than the
        latency of a bad day."""
        self.began_at = -1.0
        """Requests sent before this time went to another server, and do not arrive at this one."""
        self.context = copy_context()
        self.transactions: set[Any] = set()
        """Users' open transactions, which a crash of the server ends."""
        self.statements = 0
        self.note: Callable[[str, str], None] | None = None
        """Told who waits in vain, if set."""
        self._observe = observe

    def end_transactions(self) -> None:
        """End all transactions, as a crash does."""
        for transaction in list(self.transactions):
            transaction.abort()

    def execute(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], who: str = ""
    ) -> Any:
        """Execute one statement, at once and completely."""
        self.statements += 1
        work: Coroutine[Any, Any, Any] = getattr(self.store, name)(*args, **kwargs)
        try:
            work.send(None)
        except StopIteration as end:
            self._observe(name, args, end.value, who)
            return end.value
        raise QueryFailed("a statement of the simulated database waited", got=name)


@dataclass
class Link:
    """One process's link to the database. ``cut``: "", ``requests``, ``answers`` or ``both``."""

    server: Server
    rng: Rng
    weather: Weather
    cut: str = ""
    cut_line: str = ""
    """The connection it applies to: ``work``, ``guard``, or "" for both and for notifications."""
    closed: bool = False
    unknown: int = 0
    """The number of calls whose caller was not told the outcome."""
    stalled_until: float = 0.0
    """Requests sent before this time arrive then: delayed, not lost."""
    stalled_line: str = ""
    """The connection it applies to, as for ``cut_line``."""
    held: tuple[str, float] | None = None
    """Delays the next statement of this name by this many seconds, and no other one."""
    wakeups: list[SimWakeups] = field(default_factory=list)
    name: str = ""
    """The process that it belongs to."""

    def way(self) -> float:
        """How long one direction takes, in seconds."""
        weather, random = self.weather, self.rng.random
        if weather.slow and random() < weather.slow:
            return random() * weather.slow_seconds
        return weather.latency * (0.5 + random())

    def loses(self, share: float, direction: str, line: str = "") -> bool:
        if self.cut and self.cut in (direction, "both") and self.cut_line in ("", line):
            return True
        return share > 0 and self.rng.random() < share

    def send(self, act: Callable[[], Any], seconds: float) -> asyncio.Future[Any]:
        """Run ``act`` at the server. Gives its answer, or Unavailable after ``seconds``."""
        call = _Call(self, "", (act,), {}, seconds, None)
        call.go(self.server.loop.now)
        return call.answer


class _Call:
    """One request, from its sending until its answer or until the caller gives up. A run has ten
    thousand of them, so each is a single object without overhead. If ``name`` is empty, ``args``
    has one function to call at the server."""

    __slots__ = ("answer", "args", "context", "give_up_at", "kwargs", "line", "link", "name",
                 "over", "patience", "sent_at", "store")  # fmt: skip
    patience: Any
    """The timer of a call that waits for its turn."""

    def __init__(
        self,
        link: Link,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        seconds: float,
        store: FaultyStore | None,
        line: str = "work",
    ) -> None:
        loop = link.server.loop
        self.link = link
        self.name = name
        self.args = args
        self.kwargs = kwargs
        self.store = store
        self.line = line
        self.context: Context = copy_context()
        self.answer: asyncio.Future[Any] = loop.create_future()
        self.give_up_at = loop.now + (seconds if seconds > 0.001 else 0.001)
        self.over = False

    def go(self, now: float) -> None:
        """Send it."""
        link = self.link
        server, weather = link.server, link.weather
        self.sent_at = now
        if self.give_up_at < now + 0.001:
            self.give_up_at = now + 0.001
        if link.closed or not server.up or (weather.refused and link.loses(weather.refused, "")):
            error = Unavailable("the database cannot be reached", sent=False)
            # the caller waits no longer for a refusal than for an answer
            refused_at = min(now + link.way(), self.give_up_at)
            server.loop.call_at(refused_at, self.settle, None, error)
            return
        arrives_at = _NEVER
        if not (
            (link.cut or weather.request_lost)
            and link.loses(weather.request_lost, "requests", self.line)
        ):
            arrives_at = now + link.way()
            if link.held and link.held[0] == self.name:
                arrives_at += link.held[1]
                link.held = None
            if now < link.stalled_until and link.stalled_line in ("", self.line):
                arrives_at += link.stalled_until - now
            server.loop.call_at(arrives_at, self.arrive, context=server.context)
        if arrives_at >= self.give_up_at:
            server.loop.call_at(self.give_up_at, self.give_up, context=self.context)

    def give_up_waiting(self) -> None:
        """It was never sent, because no connection was free."""
        self.over = True
        if not self.answer.done():
            self.answer.set_exception(Unavailable("no connection was free in time"))
            self.answer.exception()

    def give_up(self) -> None:
        link, seconds = self.link, self.give_up_at - self.sent_at
        link.unknown += 1
        if link.server.note:
            named = self.name or getattr(self.args[0], "__name__", "a call")
            link.server.note(link.name, f"… gives up after {seconds:.3g} s: {named}")
        text = f"the database did not answer within {seconds:.3g} s"
        self.settle(None, Unavailable(text, sent=True))

    def arrive(self) -> None:
        """The request arrives at the server. The caller then gets the answer or gives up, which it
        may also do while the request is still on its way."""
        link = self.link
        server, weather = link.server, link.weather
        now = server.loop.now
        in_time = now < self.give_up_at
        answers_at = _NEVER
        if (
            server.up
            and self.sent_at >= server.began_at
            and (now <= server.calm_from + _UNDER_WAY_SECONDS or self.sent_at >= server.calm_from)
            and (in_time or self.name not in NEVER_LATE)
        ):
            result, error = None, None
            try:
                if self.name:
                    result = server.execute(self.name, self.args, self.kwargs, link.name)
                else:
                    result = self.args[0]()
            except LeaseworkError as refused:
                error = refused
            if not (
                (link.cut or weather.answer_lost)
                and link.loses(weather.answer_lost, "answers", self.line)
            ):
                answers_at = now + link.way()
        if answers_at < self.give_up_at:
            server.loop.call_at(answers_at, self.settle, result, error, context=self.context)
        elif in_time:
            server.loop.call_at(self.give_up_at, self.give_up, context=self.context)

    def settle(self, result: Any, error: LeaseworkError | None) -> None:
        if self.over:
            return
        self.over = True
        if self.store is not None:
            self.store.free()
        answer = self.answer
        if answer.done():
            return  # the waiting caller was cancelled; the call continued
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)
            answer.exception()  # perhaps nobody retrieves it


class FaultyStore:
    """A Store over a link, with one connection on which calls wait their turn."""

    def __init__(self, link: Link, call_timeout: float, line: str = "work") -> None:
        self._link = link
        self._call_timeout = call_timeout
        self._line = line
        self._busy = False
        self._waiting: deque[_Call] = deque()

    @classmethod
    def over(cls, link: Link, call_timeout: float, line: str = "work") -> Store:
        return cast(Store, cls(link, call_timeout, line))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(SimStore, name):
            raise AttributeError(name)
        setattr(FaultyStore, name, _operation(name))  # once, for all instances
        return getattr(self, name)

    def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float | None
    ) -> asyncio.Future[Any]:
        """Send it now, or let it wait for its turn."""
        if seconds is None:
            seconds = self._call_timeout
        call = _Call(self._link, name, args, kwargs, seconds, self, self._line)
        loop = self._link.server.loop
        if self._busy:
            self._waiting.append(call)
            call.patience = loop.call_at(call.give_up_at, call.give_up_waiting)
        else:
            # a cancelled caller's call continues: the turn ends with the answer
            self._busy = True
            call.go(loop.now)
        return call.answer

    def free(self) -> None:
        """Pass the free connection to the call that has waited longest."""
        while self._waiting:
            call = self._waiting.popleft()
            call.patience.cancel()
            if not call.answer.done():
                call.go(self._link.server.loop.now)
                return
        self._busy = False

    def shut(self) -> None:
        """In production this closes the sockets, and the next calls are refused."""

    async def close(self) -> None:
        """Nothing to close."""


def _operation(name: str) -> Callable[..., asyncio.Future[Any]]:
    """A method that calls the store's operation of that name."""
    parameters = list(signature(getattr(SimStore, name)).parameters)
    if "timeout" not in parameters:
        return lambda self, *args, **kwargs: self.call(name, args, kwargs, None)
    timeout_at = parameters.index("timeout") - 1  # without self
    return lambda self, *args, **kwargs: self.call(name, args, kwargs, args[timeout_at])


class SimWakeups(Listener):
    """Notifications over a link; ``healthy`` as long as the link is not cut."""

    def __init__(self, link: Link, handlers: Handlers) -> None:
        self._link = link
        self._handlers = handlers
        self._context = copy_context()
        link.wakeups.append(self)

    def start(self) -> None:
        """Nothing to do: it listens from the beginning."""

    async def stop(self) -> None:
        self._link.wakeups.remove(self)

    @property
    def healthy(self) -> bool:  # type: ignore[override]
        return not self._link.cut and self._link.server.up

    def check(self) -> None:
        """Wake-ups are lost here without a word."""

    @property
    def pooled(self) -> bool:  # type: ignore[override]
        return False

    def deliver(self, message: str) -> None:
        """Send one notification on its way."""
        link, weather = self._link, self._link.weather
        copies = 1 + (link.rng.random() < weather.wake_doubled)
        for _ in range(copies):
            if link.loses(weather.wake_lost, "answers"):
                continue
            late = link.rng.random() < weather.wake_late
            seconds = link.rng.random() * 5 if late else link.way()
            kind, _, subject = message.partition(":")
            if handler := self._handlers.get(kind):
                link.server.loop.call_later(seconds, handler, subject, context=self._context)
