"""An application whose jobs an older version stored, and whose jobs the present one must run.

``fill`` runs in the version that is released; its rows become part of the fixture. ``check`` runs
in each later version on that fixture. So the tasks, their names and arguments stay as they are.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from leasework import App, Context
from leasework.model.deadline import Deadline
from tests.support.wait import until_async

RECOVER_WITHIN = 9.0
FAR = datetime(2126, 1, 1, tzinfo=UTC)
"""What waits for this must still wait when a much later version reads the fixture."""


class Sample:
    def __init__(self, dsn: str) -> None:
        self.app = App(dsn, name="sample", release="sample", recover_within=RECOVER_WITHIN)
        self.ran: list[str] = []
        one = self.app.limit("one", concurrency=1, key="who")

        @self.app.task(name="plain")
        async def plain(n: int) -> int:
            self.ran.append(f"plain {n}")
            return n

        @self.app.task(name="limited", limits=[one])
        async def limited(who: str) -> None:
            self.ran.append(f"limited {who}")

        @self.app.task(name="order")
        async def order(ctx: Context) -> str:
            charge = await ctx.step("charge", self.charge)
            self.ran.append("order waits")
            decision = await ctx.event("approved")
            return f"{charge} {decision['by']}"

        @self.app.task(name="done")
        async def done(batch: dict[str, Any]) -> None:
            self.ran.append(f"batch of {batch['total']}")

        @self.app.task(name="late")
        async def late(breach: dict[str, Any]) -> None:
            self.ran.append("late")

        self.plain, self.limited, self.order, self.done = plain, limited, order, done
        self.late = late

    def charge(self) -> str:
        self.ran.append("charge")
        return "charged"

    async def fill(self) -> None:
        """Leave something of each kind behind: jobs that have finished, wait, are not due,
        have limits, a unique key or a deadline, and one that is suspended after a step; a batch, a
        schedule, a deadline without a job."""
        app = self.app
        async with app.node():
            await (await self.plain.enqueue(0)).wait(timeout=60)
            await self.order.using(unique="order").enqueue()
            await until_async(lambda: "order waits" in self.ran, 60, "the suspended job")

            async def suspended() -> bool:
                return not await app.jobs(state="running", task="order")

            await until_async(suspended, 60, "the suspension")
        await app.enqueue_many([self.plain.job(1), self.limited.job("a"), self.limited.job("a")])
        await self.plain.using(run_at=FAR, unique="far", tags=["kept"]).enqueue(2)
        await self.plain.using(deadline=Deadline(on_breach=self.late, at=FAR)).enqueue(3)
        await app.batch([self.plain.job(4), self.plain.job(5)], on_done=self.done)
        await app.schedules.put("far", self.plain, at=FAR, arguments={"n": 6})
        await app.deadline("books", due=FAR, on_breach=self.late)
        await app.close()

    async def check(self) -> None:
        """Run what an older version left behind. Raises AssertionError."""
        app = self.app
        again = await self.order.using(unique="order").enqueue()
        assert len(await app.jobs(task="order")) == 1, "a unique key was lost"
        async with app.node():
            assert await app.signal(again.id, "approved", {"by": "kim"})
            assert await again.wait(timeout=60) == "charged kim"
            plain = [f"plain {n}" for n in (1, 3, 4, 5)]
            wanted = sorted([*plain, "limited a", "limited a", "batch of 2", "order waits"])
            await until_async(lambda: len(self.ran) >= len(wanted), 60, "the jobs")
            assert sorted(self.ran) == wanted
            (later,) = await app.jobs(state="scheduled", tag="kept")
            kept = await self.plain.using(unique="far").enqueue(2)
            assert kept.id == later.id
            assert [one.name for one in await app.schedules.list()] == ["far"]
            await (await app.deadline("books")).met()
        await app.close()
