"""The simulated application: its tasks, its schedule, and the clients that enqueue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

from leasework.config import Settings
from leasework.duties.syncer import Planned
from leasework.env import Env, Rng
from leasework.errors import JobError, JobNotFound, LeaseworkError, LostLease, Unavailable
from leasework.jobs.client import Client
from leasework.jobs.context import Context
from leasework.jobs.tasks import Registry, TaskOptions
from leasework.model.backoff import Backoff
from leasework.model.deadline import Callback, Promise
from leasework.model.job import JobOptions, JobRequest
from leasework.model.missed import Missed
from leasework.model.outcome import Cancel, Discard, Snooze
from leasework.model.schedule import EPOCH, every
from leasework.store.store import Store
from leasework_lab.sim.check_deadlines import PAGE
from leasework_lab.sim.check_rest import EFFECT
from leasework_lab.sim.checkers import Watch
from leasework_lab.sim.env import SimClock, sim_env
from leasework_lab.sim.link import FaultyStore, Link
from leasework_lab.sim.loop import VirtualLoop, here
from leasework_lab.sim.transaction import LateEnqueue, Transaction

QUICK = TaskOptions(backoff=Backoff(base=0.2, longest=1.0), max_attempts=4)
NEW_IN = "r2"
"""From this release on there is one more task."""
_NOT_DONE = (Cancel, Discard, Snooze)
Act = Callable[["Workload", Context], Awaitable[Any]]


@cache
def registry(release: str) -> Registry:
    """The tasks of one release, created once for all runs: each handler gets its workload from the
    process in which it runs."""
    known, plain = Registry(), _handler(Workload.plain)
    known.add("plain", plain, QUICK)
    known.add("flaky", _handler(Workload.flaky), QUICK)
    known.add(EFFECT, _handler(Workload.effect), QUICK)
    known.add("stubborn", _handler(Workload.stubborn), QUICK)
    known.add(PAGE, _told(plain), QUICK)
    known.add("tick", plain, QUICK)
    if release >= NEW_IN:
        known.add("new", plain, QUICK)
    return known


def _handler(act: Act) -> Callable[[Context], Awaitable[Any]]:
    async def handler(ctx: Context) -> Any:
        process = here()
        work = process.work
        work.watch.started(ctx, process)
        try:
            result = await act(work, ctx)
            if not isinstance(result, _NOT_DONE):
                work.watch.returned(ctx)
            return result
        finally:
            work.watch.ended(ctx)

    return handler


def _told(handler: Callable[[Context], Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """A handler that takes a breach."""

    async def page(ctx: Context, breach: dict[str, Any]) -> Any:
        return await handler(ctx)

    return page


class Workload:
    """The workload of a run. Handlers take virtual time; their behaviour is drawn each time."""

    def __init__(self, watch: Watch, loop: VirtualLoop, rng: Rng, settings: Settings) -> None:
        self.watch = watch
        self._loop = loop
        self._rng = rng
        self._settings = settings
        self._known: list[UUID] = []
        """Acknowledged jobs that clients can choose from."""
        self.enqueues = 0
        self._gone: tuple[type[LeaseworkError], ...] = ()
        """Further errors that calls about a known job may raise."""

    # -- what the tasks do -----------------------------------------------------------------------
    async def plain(self, ctx: Context) -> None:
        draw = self._rng.random()
        await asyncio.sleep(9 * draw if draw > 0.97 else draw * draw)

    async def flaky(self, ctx: Context) -> Any:
        await asyncio.sleep(self._rng.random() * 0.3)
        draw = self._rng.random()
        if draw < 0.2:
            raise JobError("the handler failed")
        if draw < 0.3:
            return Discard() if draw < 0.25 else Cancel()
        if draw < 0.4:
            return Snooze(self._rng.random())
        if draw < 0.6:
            with suppress(Unavailable):
                await ctx.progress(draw)
        return {"draw": draw}

    async def effect(self, ctx: Context) -> None:
        """Commit its effect and its completion together."""
        await asyncio.sleep(self._rng.random())
        link = here().link
        transaction = Transaction(self.watch.db, link, self.watch.effects)
        await ctx.complete(on=transaction)
        if self._rng.random() < 0.1:
            return  # never committed: the server ends it
        await asyncio.sleep(self._rng.random() * 0.2)
        await transaction.commit()

    async def stubborn(self, ctx: Context) -> None:
        """Continue for a while after it is cancelled."""
        try:
            await asyncio.sleep(self._rng.random() * 3)
        except asyncio.CancelledError:
            await asyncio.sleep(self._rng.random() * 2)
            raise

    # -- the schedule ----------------------------------------------------------------------------
    def planned(self, release: str) -> list[Planned]:
        """The schedule. A newer release has another anchor: a new definition, the same moments."""
        job = registry(NEW_IN).get("tick").job()
        spec = every(seconds=1, anchor=EPOCH + timedelta(seconds=int(release >= NEW_IN)))
        return [Planned("second", spec, job, Missed.LATEST, 1.0)]

    # -- clients ---------------------------------------------------------------------------------
    async def client(self, link: Link, until: float) -> None:
        """Enqueue, and now and then cancel or retry a job, until the time is up."""
        rng = self._rng
        env = sim_env(SimClock(self._loop, 1.0, 0.0), rng, "client", 1)
        store = FaultyStore.over(link, 2.0)
        no: Any = None
        client = Client(store, no, env, self._settings, no, no)
        while self._loop.time() < until:
            await asyncio.sleep(rng.random() * 1.2)
            with suppress(Unavailable, LostLease, *self._gone):
                await self._once(client)
                if rng.random() < 0.1:
                    await self._promise_alone(store, env)
                if rng.random() < 0.1:
                    await self._enqueue_late(link, env.new_id())

    async def _once(self, client: Client) -> None:
        rng, watch = self._rng, self.watch
        draw = rng.random()
        if draw < 0.08 and self._known:
            await client.cancel(self._some_job())
        elif draw < 0.14 and self._known:
            await client.retry(self._some_job())
        else:
            count = 20 if draw > 0.98 else rng.choice([1, 1, 2, 3])
            jobs = await client.enqueue_many([self._request(plain=count == 20)] * count)
            self.enqueues += len(jobs)
            watch.acknowledged.update(job.id for job in jobs)
            self._known.extend(job.id for job in jobs)

    async def _enqueue_late(self, link: Link, job: UUID) -> None:
        """Enqueue in a transaction that commits after others which began later."""
        late = LateEnqueue(self.watch.db, link, job, self._request(plain=True))
        await late.begin()
        await asyncio.sleep(self._rng.random() ** 3 * 10)
        await late.commit()
        self.watch.acknowledged.add(job)
        self.enqueues += 1

    def _promise(self) -> Promise:
        rng = self._rng
        return Promise(
            Callback(PAGE),
            since=rng.choice(["scheduled", "enqueued", "started"]),
            seconds=0.05 + rng.random() ** 3 * 8,
            until=rng.choice(["success", "finished"]),
        )

    async def _promise_alone(self, store: Store, env: Env) -> None:
        """Arm a deadline, from one client or several at once; end it in time, too late or never."""
        rng = self._rng
        promise = Promise(Callback(PAGE), since="enqueued", seconds=0.1 + rng.random())
        name = f"promise-{rng.randrange(3)}"
        deadline, _ = await store.arm_deadline(env.new_id(), name, promise.as_json(), None)
        await asyncio.sleep(rng.random() * 2)
        if rng.random() < 0.7:
            await store.end_deadline(deadline, rng.choice(["met", "cancelled"]), None)

    def forget(self, lost: set[UUID]) -> None:
        """Forget jobs that a failover has lost."""
        self._known = [job for job in self._known if job not in lost]
        self._gone = (JobNotFound,)

    def _some_job(self) -> UUID:
        return self._rng.choice(self._known)

    def _request(self, *, plain: bool) -> JobRequest[Any]:
        rng = self._rng
        if plain:
            return JobRequest(JobOptions("plain"), "{}")
        task = rng.choice(["plain", "plain", "flaky", "effect", "effect", "stubborn", "new"])
        options: dict[str, Any] = {"max_attempts": 4}
        draw = rng.random()
        if draw < 0.2:
            options["run_in"] = rng.random() * 3
        elif draw < 0.35:
            options["unique"] = f"key-{rng.randrange(5)}"
            options["on_conflict"] = rng.choice(["return", "replace"])
        elif draw < 0.4:
            options["requeue_after"] = 1.0
        elif draw < 0.5:
            options["timeout"] = 0.5
        options["priority"] = rng.choice([0, 0, 1])
        if rng.random() < 0.2:
            options["deadline"] = self._promise()
        return JobRequest(JobOptions(task, **options), "{}")
