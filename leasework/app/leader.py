"""``app.leader(name)``: elects one process of many."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self, TypeVar

from leasework import own_tasks
from leasework.app.advisory import AdvisoryLock
from leasework.app.held import Held, Scope
from leasework.app.home import Home
from leasework.config import LEADER_PREFIX
from leasework.errors import ConfigError, LeaseworkError, LostLease, Unavailable, told
from leasework.lease.bids import Bid, Patience
from leasework.lease.guard import Guard
from leasework.model.moments import Duration, checked_timeout
from leasework.tuning import Tuning

T = TypeVar("T")
Callback = Callable[["Leader"], Any]


class Leader(Held):
    """A process's part in an election. It stands for election while the block runs::

        async with app.leader("engine") as lead:
            await lead.run(engine)  # runs engine(lead) while this process leads

    ``on_gain(lead)`` and ``on_loss(lead)`` are called in the block's event loop. They can be plain
    or async functions. If ``on_gain`` still runs at the loss, it is cancelled. After a loss,
    another process leads as soon as ``on_loss``, :meth:`run` and :meth:`leading` have ended here,
    or when the lease has expired. A process whose event loop is blocked for more than two renewals
    (4 s by default) also loses the leadership.

    ``also_advisory_key`` is for a rollout, while an older version still elects by one of
    PostgreSQL's advisory locks: a name, a number or a (class, object) pair, as for
    ``app.advisory_lock``. This process then leads only while it has both the lease and that lock.
    """

    def __init__(
        self,
        app: Home,
        name: str,
        *,
        on_gain: Callback | None = None,
        on_loss: Callback | None = None,
        also_advisory_key: str | int | tuple[str | int, int] | None = None,
    ) -> None:
        super().__init__(app, LEADER_PREFIX, name)
        self._also: AdvisoryLock | None = None
        if also_advisory_key is not None:
            self._also = AdvisoryLock(app, also_advisory_key, scope="session", cancel=False)
            self._also.on_lost(self._also_lost)
        self._on_gain = on_gain
        self._on_loss = on_loss
        self._gained = asyncio.Event()
        self._bodies = 0
        self._refused = False
        self._no_bodies = asyncio.Event()
        self._no_bodies.set()
        self._task: asyncio.Task[None] | None = None
        self._left = False
        """The block has ended."""
        self._unused: Guard | None = None
        """Taken for the election, which has not begun."""

    def _now(self) -> Bid | None:
        return super()._now() if self._also is None or self._also.held else None

    def _also_lost(self, why: str) -> None:
        if self._bid:
            self._bid.lost.set(f"the advisory lock: {why}")

    @property
    def is_leader(self) -> bool:
        """Whether this process leads at this moment. Reads the clock each time."""
        return self._now() is not None

    @property
    def term(self) -> int | None:
        """The number of this tenure, a token that only grows. None while another process leads."""
        return self._token()

    async def wait(self, timeout: Duration | None = None) -> int:
        """Wait until this process leads, and return the term. Raises TimeoutError after
        ``timeout`` seconds, and LostLease when the block has ended."""
        async with asyncio.timeout(checked_timeout(timeout)):
            while (term := self.term) is None:
                if self._left:
                    raise LostLease(f"the block of the leader {self.name!r} has ended")
                await self._gained.wait()
                if self._bid and not self._now():
                    # the clock shows a loss before the guard does; an advisory lock may be back
                    await own_tasks.within(Tuning.leader_retry_seconds, self._bid.lost.wait())
                    await asyncio.sleep(0)
        return term

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[int]:
        """Wait until this process leads, then run the block::

            async with lead.leading() as term:
                await engine(term)

        At a loss, the block is cancelled and raises LostLease.
        """
        await self.wait()
        async with self.while_leading() as term:
            yield term

    @asynccontextmanager
    async def while_leading(self) -> AsyncIterator[int]:
        """Like :meth:`leading`, but raises LostLease at once if this process does not lead."""
        bid, term = self._bid, self.term
        if bid is None or term is None:
            raise self._is_lost()
        scope = Scope(bid)
        self._begin(bid)
        scope.enter()
        try:
            yield term
        except asyncio.CancelledError as error:
            if scope.leave(type(error)):
                raise LostLease(
                    f"the leadership {self.name!r} was lost",
                    got=bid.lost.why,
                    do="Another process may lead now: roll back what is not committed",
                ) from None
            raise
        finally:
            scope.leave(None)
            self._end(bid)

    async def run(self, body: Callable[[Leader], Awaitable[T]]) -> T:
        """Run ``body(lead)`` while this process leads. At a loss, ``body`` is cancelled. It starts
        again when this process leads again. When ``body`` returns, return its result. Raises what
        ``body`` raises, also a LostLease of its own."""
        while True:
            term = await self.wait()
            try:
                async with self.leading():
                    return await body(self)
            except LostLease:
                if self.term == term:  # the body's own error, of a lock or of another leader
                    raise

    def _begin(self, bid: Bid) -> None:
        self._bodies += 1
        bid.has_body = True
        self._no_bodies.clear()

    def _end(self, bid: Bid) -> None:
        self._bodies -= 1
        if self._bodies == 0:
            bid.has_body = False
            self._no_bodies.set()

    async def __aenter__(self) -> Self:
        if self._task:
            raise ConfigError(
                f"this leader object of {self.name!r} is in use",
                do="Call app.leader(name) for each use",
            )
        # here, so that the caller gets the error if the database refuses
        guard = await self._app.desk.take(leader=True)
        self._process = own_tasks.generation
        self._left, self._unused = False, guard
        self._gained.clear()
        self._task = asyncio.create_task(self._stand(guard), name=f"leasework-{self._full_name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        task, self._task = self._task, None
        if self._copied():
            return
        try:
            if task:
                task.cancel()
                await asyncio.wait([task])
        finally:
            if self._unused:  # it was cancelled before its first step
                self._app.desk.give_back(self._unused)
                self._unused = None
            self._left = True
            self._gained.set()  # those who wait for the next term are told

    async def _stand(self, guard: Guard | None) -> None:
        self._unused = None
        while True:
            try:
                guard = guard or await self._app.desk.take(leader=True)
                try:
                    while True:
                        await self._tenure(guard)
                finally:
                    self._app.desk.give_back(guard)
            except Exception as error:
                # the node has stopped, or the database refuses: use another node a little later
                if guard and not isinstance(error, Unavailable) and not self._refused:
                    self._refused = True
                    guard.emit("service_failed", service=self._full_name, error=str(error))
                guard = None
                await asyncio.sleep(Tuning.leader_retry_seconds)

    def _body_loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the event loop that loses the leadership when it is blocked."""
        return asyncio.get_running_loop()

    async def _tenure(self, guard: Guard) -> None:
        """Stand for election, lead, and lose."""
        bid = self._new_bid(Patience.WAIT, has_body=False, loop=self._body_loop())
        called: asyncio.Task[None] | None = None
        try:
            guard.ask(bid)
            await asyncio.wrap_future(bid.answer)
            if self._also and not await self._lock_too(self._also, bid):
                return
            if self._on_gain or self._on_loss:
                self._begin(bid)
            self._bid, self._guard = bid, guard
            self._gained.set()
            if self._on_gain:
                called = asyncio.create_task(self._call(self._on_gain, guard))
            await bid.lost.wait()
        finally:
            self._gained.clear()
            work = asyncio.ensure_future(self._lose(bid, guard, called))
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                await work
                raise

    async def _lock_too(self, also: AdvisoryLock, bid: Bid) -> bool:
        """Take the advisory lock too, which the old version may still hold. Return False if this
        process lost the lease first."""
        while not await also.acquire():
            await own_tasks.within(Tuning.leader_retry_seconds, bid.lost.wait())
            if bid.lost.is_set():
                return False
        return not bid.lost.is_set()

    async def _lose(self, bid: Bid, guard: Guard, called: asyncio.Task[None] | None) -> None:
        if self._bid is bid and not bid.lost.is_set():
            bid.lost.set("left")  # the block has ended: is_leader must be False
        try:
            if called:
                called.cancel()
                await asyncio.wait([called])
            if self._bid is bid:
                if self._on_loss:
                    await self._call(self._on_loss, guard)
                if self._on_gain or self._on_loss:
                    self._end(bid)
                await self._no_bodies.wait()
            if self._also:
                with suppress(LeaseworkError):  # already lost, perhaps with its connection
                    await self._also.release()
        finally:
            try:
                guard.done(bid)
            except Unavailable:  # the node has stopped, and its leases with it
                bid.end()
        released = asyncio.wrap_future(bid.released)
        await own_tasks.within(self._app.settings.call_timeout, released)

    async def _call(self, callback: Callback, guard: Guard) -> None:
        try:
            answer = callback(self)
            if inspect.isawaitable(answer):
                await answer
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
                raise  # else it comes from a task that the callback has cancelled and waited for
            guard.emit("callback_failed", name=self._full_name, error=told(error))
