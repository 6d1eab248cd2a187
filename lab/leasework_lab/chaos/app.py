"""The campaign's application: tasks whose handlers record what they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from leasework.app import App, Task
from leasework.errors import LeaseworkError, LostClaim, WaitTimeout
from leasework.jobs.context import Context
from leasework.model.backoff import Backoff
from leasework.model.deadline import Deadline
from leasework.model.limits import Rate
from leasework_lab.chaos.history import Writer
from leasework_lab.chaos.tables import ChaosSession

NAME = "chaos"
SCHEDULE = "every-second"
QUEUES = {"quick": 20, "slow": 24}
AT_ONCE = 2
"""How many jobs of the task ``limited`` may run at once, in all processes."""
SIGNALS, PARTS = 2, 3
"""How many signals a job of the task ``flow`` waits for, and how many jobs it gathers."""
PAID = " pay"
"""After the ref of a flow: the effect of its step."""
_ATTEMPTS = 1000
_PROMISED_SECONDS = 1.5
"""The deadline of naps: many finish barely in time or barely too late."""
_CALL_SECONDS = 4.0
_ANSWER_SECONDS = 90.0
"""How long a flow waits for a signal. The job that sends it may be quarantined."""
_STEP_SECONDS = 0.4
"""The longest step."""
_BACKOFF = Backoff(base=0.2, longest=2.0)


class Sessions:
    """Connections for handlers' transactions; broken ones are not reused."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._idle: list[ChaosSession] = []

    @asynccontextmanager
    async def one(self) -> AsyncIterator[ChaosSession]:
        session = self._idle.pop() if self._idle else None
        if session is None or not session.usable:
            session = await ChaosSession.open(self._app.settings, "chaos handler")
        try:
            yield session
        finally:
            if session.usable:
                self._idle.append(session)
            else:
                await session.close()


class ChaosApp:
    """The :class:`App` with its tasks and schedule. ``writer`` None: for a producer, which runs no
    tasks."""

    def __init__(self, writer: Writer | None, **options: Any) -> None:
        self.app = App(name=NAME, **options)  # recover_within comes from the environment
        self.sessions = Sessions(self.app)
        self._writer = writer
        app = self.app

        @app.task(name="note", queue="quick", max_attempts=_ATTEMPTS)
        async def note(ctx: Context, ref: str, seconds: float = 0) -> None:
            async with self._run(ctx, ref):
                pass

        @app.task(name="page", queue="quick", max_attempts=_ATTEMPTS)
        async def page(ctx: Context, breach: dict[str, Any]) -> None:
            async with self._run(ctx, f"page-{breach['deadline']}"):
                pass

        promised = Deadline(seconds=_PROMISED_SECONDS, on_breach=page)

        @app.task(name="nap", queue="slow", max_attempts=_ATTEMPTS, deadline=promised)
        async def nap(ctx: Context, ref: str, seconds: float) -> None:
            async with self._run(ctx, ref):
                await asyncio.sleep(seconds)

        @app.task(name="effect", queue="slow", max_attempts=_ATTEMPTS, backoff=_BACKOFF)
        async def effect(ctx: Context, ref: str, seconds: float) -> None:
            async with self._run(ctx, ref):
                await asyncio.sleep(seconds)
                await self._complete(ctx, ref)

        @app.task(name="stubborn", queue="slow", max_attempts=_ATTEMPTS, backoff=_BACKOFF)
        async def stubborn(ctx: Context, ref: str, seconds: float) -> None:
            """Ignores its cancellation and completes whatever has happened."""
            async with self._run(ctx, ref):
                try:
                    await asyncio.sleep(seconds)
                except asyncio.CancelledError:
                    self._note(ctx, ref, "defied")
                await self._complete(ctx, ref)

        two = app.limit("two", concurrency=AT_ONCE, rate=Rate(5, per=1.0, burst=4))

        @app.task(name="limited", queue="slow", max_attempts=_ATTEMPTS, limits=[two])
        async def limited(ctx: Context, ref: str, seconds: float) -> None:
            async with self._run(ctx, ref):
                await asyncio.sleep(seconds / 4)

        self.tasks: dict[str, Task[..., Any]] = {
            "note": note,
            "nap": nap,
            "effect": effect,
            "stubborn": stubborn,
            "limited": limited,
            **self._durable(),
        }
        if writer:
            self._schedule()

    def _durable(self) -> dict[str, Task[..., Any]]:
        """A job with every kind of step, the jobs that it makes, and what a batch calls."""
        app = self.app

        @app.task(name="part", queue="quick", max_attempts=_ATTEMPTS)
        async def part(ctx: Context, of: str, number: int) -> str:
            async with self._run(ctx, f"{of} part {number}"):
                return f"{of} part {number}"

        @app.task(name="answer", queue="quick", max_attempts=_ATTEMPTS, backoff=_BACKOFF)
        async def answer(ctx: Context, job: str) -> None:
            async with self._run(ctx, ref := f"answer to {job}"):
                signal = f"{ctx.job_id} {ctx.token}"
                self._note(ctx, ref, "signalling", signal=signal)
                if await app.signal(job, "go", signal):
                    self._note(ctx, ref, "signalled", signal=signal)

        @app.task(name="flow", queue="slow", max_attempts=_ATTEMPTS, backoff=_BACKOFF)
        async def flow(ctx: Context, ref: str, seconds: float) -> None:
            async with self._run(ctx, ref):
                await self._step(ctx, ref, "first")
                await self._pay(ctx, ref)
                for number in range(SIGNALS):
                    await ctx.spawn(answer.job(job=str(ctx.job_id)), key=number)
                    signal = None
                    with suppress(WaitTimeout):
                        signal = await ctx.event("go", key=number, timeout=_ANSWER_SECONDS)
                    self._note(ctx, ref, "saw", step=f"go[{number}]", value=signal)
                await ctx.sleep(seconds / 4)
                parts = [part.job(of=ref, number=number) for number in range(PARTS)]
                found = await ctx.gather(parts, return_exceptions=True)
                texts = [each if isinstance(each, str) else None for each in found]
                self._note(ctx, ref, "saw", step="gather", value=texts)
                await self._step(ctx, ref, "last")

        @app.task(name="called", queue="quick", max_attempts=_ATTEMPTS)
        async def called(ctx: Context, batch: dict[str, Any]) -> None:
            async with self._run(ctx, f"called-{batch['id']}"):
                pass

        return {"flow": flow, "called": called}

    def _schedule(self) -> None:
        app = self.app

        @app.every(seconds=1, name=SCHEDULE, missed="all")
        @app.task(name="tick", queue="quick", max_attempts=_ATTEMPTS)
        async def tick(ctx: Context) -> None:
            async with self._run(ctx, f"tick-{ctx.scheduled_for.timestamp():.0f}"):
                pass

    def _note(self, ctx: Context, ref: str, kind: str, **fields: Any) -> None:
        if self._writer:
            node = ctx.claim.node
            job = {"ref": ref, "job": ctx.job_id, "token": ctx.token, "node": node}
            task = ctx.claim.job.task
            self._writer.note(kind, **job, task=task, attempt=ctx.attempt, **fields)

    @asynccontextmanager
    async def _run(self, ctx: Context, ref: str) -> AsyncIterator[None]:
        self._note(ctx, ref, "start")
        how = "ended"
        try:
            yield
        except asyncio.CancelledError:
            how = "cancelled"
            raise
        except BaseException as error:
            how = type(error).__name__
            raise
        finally:
            self._note(ctx, ref, "end", how=how)

    async def _step(self, ctx: Context, ref: str, name: str) -> None:
        async def work() -> str:
            self._note(ctx, ref, "step", step=name)
            await asyncio.sleep(_STEP_SECONDS * self.app.env.rng.random())
            return str(self.app.env.new_id())

        value = await ctx.step(name, work)
        self._note(ctx, ref, "saw", step=name, value=value)

    async def _pay(self, ctx: Context, ref: str) -> None:
        """A step whose effect and whose record are in one transaction."""

        async def pay(session: ChaosSession) -> str:
            self._note(ctx, ref, "step", step="pay")
            await session.effect(ref + PAID, ctx.job_id, ctx.token)
            return str(self.app.env.new_id())

        async with self.sessions.one() as session, session.transaction(_CALL_SECONDS):
            value = await ctx.step("pay", pay, session, on=session.connection)
        self._note(ctx, ref, "saw", step="pay", value=value)

    async def _complete(self, ctx: Context, ref: str) -> None:
        """Commit the effect and the completion in one transaction."""
        self._note(ctx, ref, "completing")
        try:
            async with self.sessions.one() as session, session.transaction(_CALL_SECONDS):
                await session.effect(ref, ctx.job_id, ctx.token)
                await ctx.complete(on=session.connection)
        except LostClaim:
            self._note(ctx, ref, "complete_refused")
            raise
        except LeaseworkError as error:
            self._note(ctx, ref, "complete_unknown", error=type(error).__name__)
            raise
        self._note(ctx, ref, "completed")
