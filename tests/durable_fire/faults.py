"""The driver: what applications and people do, beside the faults of ``tests.limits_fire``."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import Any, ClassVar
from uuid import UUID, uuid4

import psycopg

from leasework.errors import JobNotFound
from leasework.model.job import JobRequest
from tests.durable_fire import application
from tests.durable_fire.application import CONCURRENCY, LASTING, request, send
from tests.limits_fire import faults

WORKERS = 4
MOST_WAITING = 150
LEAST_CHANGES = 4000
SUSPENDED = """
select j.id::text, split_part(s.name, '[', 1) from leasework.job j
join leasework.step s on s.job = j.id and s.open and s.kind = 'event'
where j.held_because = 'event' and not j.ready and j.node is null and not exists (
    select 1 from leasework.inbox i where i.job = j.id and i.name = split_part(s.name, '[', 1))
"""
"""Jobs that wait for a signal, which has not been sent."""
ASLEEP = """
select j.id::text, j.held_because, s.name, extract(epoch from clock_timestamp())::float8
from leasework.job j join leasework.step s on s.job = j.id and s.open and s.kind = j.held_because
where j.node is null and not j.ready and j.run_at > clock_timestamp() + interval '100 ms' and (
    j.held_because = 'event' and exists (select 1 from leasework.inbox i
                                         where i.job = j.id and i.name = split_part(s.name, '[', 1))
    or j.held_because = 'gather' and exists (
        select 1 from leasework.batch b
        where b.id::text = s.result #>> '{}' and b.ended_at is not null))
"""
"""Jobs that wait for what is there. No snapshot may have one."""
ROOM = """
select (select count(*) from leasework.job where held_because in ('sleep', 'event', 'gather')),
       (select count(*) from (select 1 from leasework.job where held_because in ('sleep', 'event')
                              and lane is not null group by lane having count(*) > %s) x)
"""


class Fire(faults.Fire):
    application: ClassVar[Any] = application
    cut_first: ClassVar[str] = "step|batch|gather|wait_in|effect|held as|end_batches"
    hold: ClassVar[str] = "true"

    asleep: list[str]
    """Jobs that wait for what is there."""
    suspended = 0
    """Suspended jobs that were looked at."""
    beyond = 0
    """Looks at a limit of which more jobs were suspended than may run."""

    # -- what applications do --------------------------------------------------------------------
    def _request(self, kinds: Any = None) -> dict[str, Any]:
        draw = self.rng.random()
        job: dict[str, Any] = dict(LASTING)
        who = str(self.rng.randrange(3))
        if draw < 0.35:
            job |= {"task": "flow", "payload": {"who": who}}
        elif draw < 0.65:
            limits = [{"limit": "one", "key": who}]
            job |= {"task": "limited", "payload": {"who": who}, "limits": limits}
        elif draw < 0.75:
            return job | {"task": "threaded", "payload": {}}
        else:
            shape = {"depth": self.rng.randrange(2), "width": self.rng.choice((1, 3, 6, 25))}
            job |= {"task": "parent", "payload": shape}
        if self.rng.random() < 0.7:
            job["requeue_after"] = 1
        if self.rng.random() < 0.15:
            job["timeout"] = self.rng.choice((0.5, 2.0))
        return job

    async def work(self, connection: psycopg.AsyncConnection[Any]) -> None:
        rows = await connection.execute("select count(*) from leasework.job")
        [[waiting]] = await rows.fetchall()
        if waiting > MOST_WAITING:
            await asyncio.sleep(0.1)
            return
        draw = self.rng.random()
        if draw < 0.5:
            await self._jobs(connection)
        elif draw < 0.65:
            await self._batch(connection)
        else:
            chain = str(uuid4())
            links = [request("link", chain=chain, place=n) for n in range(3)]
            await self.app.enqueue(links[0].then(links[1]).then(links[2]))
            self.tally.did["chain"] += 1

    async def _jobs(self, connection: psycopg.AsyncConnection[Any]) -> None:
        jobs = [self._request() for _ in range(self.rng.randint(1, 4))]
        rows = await connection.execute(
            "select id::text from leasework.enqueue(%s)", [json.dumps(jobs)]
        )
        ids = [row[0] for row in await rows.fetchall()]
        self.tally.committed |= {i: j["task"] for i, j in zip(ids, jobs, strict=True)}
        self.tally.did["enqueue"] += len(jobs)

    async def _batch(self, connection: psycopg.AsyncConnection[Any]) -> None:
        size = self.rng.choice((0, 1, 5, 30, 60))
        options = LASTING if self.rng.random() < 0.7 else {"max_attempts": 1}
        given: dict[str, Any] = {}
        members: list[JobRequest[Any]] = [request("member", options, place=n) for n in range(size)]
        if on := self.rng.random() < 0.3:
            given["on"] = connection
        async with connection.transaction(force_rollback=on and self.rng.random() < 0.2):
            await self.app.batch(
                members, on_done="done", on_success="success", on_failure="failure", **given
            )
            if on:
                await asyncio.sleep(self.rng.uniform(0, 0.3))
        self.tally.did["batch"] += 1

    async def signal(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Send a signal to a job that waits for one."""
        rows = await connection.execute(f"{SUSPENDED} order by random() limit 1".encode())
        if found := await rows.fetchone():
            with suppress(JobNotFound):
                await send(self.app, connection, *found)
            self.tally.did["signal"] += 1

    async def end_batches(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("select leasework.end_batches()")

    # -- what people do --------------------------------------------------------------------------
    async def people(self) -> None:
        async with await self._connect() as connection:
            what = self.rng.choice(("cancel", "retry", "retry", "take", "take", "take", "expire"))
            find = {
                "cancel": "select id, 0 from leasework.job where task_name <> 'link'",
                "retry": "select id, 0 from leasework.job_done where now() - finished_at < '5 s'",
                "take": "select id, claim_token from leasework.job where node is not null",
                "expire": "select id, 0 from leasework.node",
            }[what]
            if what == "cancel" and self.rng.random() < 0.5:
                find += " and task_name = 'parent' and node is not null"
            if what == "retry":
                bad = "true" if self.rng.random() < 0.2 else "state <> 'completed'"
                find += " and " + bad
            rows = await connection.execute(f"{find} order by random() limit 2".encode())
            found = await rows.fetchall()
        store = await self.app.store()
        for job, token in found:
            self.tally.did[what] += 1
            match what:
                case "cancel":
                    with suppress(JobNotFound):
                        await self.app.cancel(job, family=self.rng.random() < 0.5)
                case "retry":
                    with suppress(JobNotFound):
                        await self.app.retry(job)
                case "take":  # from a running handler, whose process is not told
                    await store.requeue(job, token)
                case "expire" if self.rng.random() < 0.3:  # of a process that lives
                    await store.certify(UUID(str(job)), 5.0)
                    break

    # -- the fire --------------------------------------------------------------------------------
    async def burn(self, seconds: float) -> None:
        self.asleep = []
        for _ in range(WORKERS):
            self.start_worker()
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(self._with_connection(self.work, 0.0, 0.1))
                group.create_task(self._with_connection(self.signal, 0.0, 0.05))
                group.create_task(self._with_connection(self.end_batches, 0.0, 0.1))
            group.create_task(self._with_connection(self.hold_rows, 0.2, 1.0))
            group.create_task(self._with_connection(self.look, 0.2, 0.4))
            group.create_task(self._again(self.kill, 1.0, 4.0))
            group.create_task(self._again(self._freezes, 1.0, 3.0))
            group.create_task(self._again(self.replace, 0.5, 1.0))
            group.create_task(self._again(self.cut, 0.1, 0.8))
            group.create_task(self._again(self.people, 0.05, 0.3))
            await asyncio.sleep(seconds)
            await self._enough(time.time() + 3 * seconds)
            self.burning = False

    async def _enough(self, until: float) -> None:
        """On a busy machine, burn longer."""
        async with await self._connect() as connection:
            while time.time() < until:
                rows = await connection.execute("select count(*) from fire.log")
                if (await rows.fetchall())[0][0] >= LEAST_CHANGES:
                    return
                await asyncio.sleep(0.1)

    async def replace(self) -> None:
        """Start a worker for each that ended, because its node was declared dead."""
        for worker in list(self.workers):
            if not worker.process.is_alive():
                self.workers.remove(worker)
                self.tally.did["ended by itself"] += 1
                self.start_worker()

    async def _freezes(self) -> None:
        with suppress(ProcessLookupError):
            await super()._freezes()

    async def look(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Look for jobs that wait for what is there."""
        rows = await connection.execute(ASLEEP.encode())
        for job, because, name, at in await rows.fetchall():
            self.asleep.append(
                f"{job} is held for the {because} {name!r}, which is there, at {at:.3f}"
            )
        rows = await connection.execute(ROOM.encode(), [CONCURRENCY])
        [[suspended, beyond]] = await rows.fetchall()
        self.suspended += suspended
        self.beyond += beyond

    async def drain(self, seconds: float) -> int:
        """Wait until every job and batch has ended. Jobs whose signals never came get one."""
        end, left = time.time() + seconds, -1
        async with await self._connect() as connection:
            while left and time.time() < end:
                await self.replace()
                await self.look(connection)
                rows = await connection.execute(SUSPENDED.encode())
                for job, name in await rows.fetchall():
                    await connection.execute(
                        "select leasework.send_signal(%s, %s, %s)", [job, name, f'"{uuid4().hex}"']
                    )
                rows = await connection.execute(
                    "select (select count(*) from leasework.job) "
                    "+ (select count(*) from leasework.batch where ended_at is null)"
                )
                [[left]] = await rows.fetchall()
                await asyncio.sleep(0.1)
            if left:
                rows = await connection.execute(
                    "select task_name, held_because, ready, node is not null, last_error, count(*) "
                    "from leasework.job group by 1, 2, 3, 4, 5 limit 20"
                )
                self.tally.errors += [f"left: {row}" for row in await rows.fetchall()]
        return left
