"""The driver: it starts workers, kills, freezes and cuts them off, and does what people and
applications do, at random moments."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import psycopg

from leasework.errors import LeaseworkError
from tests.limits_fire import application
from tests.limits_fire.application import KEYS, KINDS, ODD, Kind

WORKERS = 5
QUEUES = ["default", "imports"]
SETTLE_SECONDS = 1.5
"""A worker counts as able to claim this long after it started or went on."""


@dataclass
class Touched:
    """Rows that the driver locked or changed, and when: others may pass over them meanwhile."""

    jobs: frozenset[str]
    since: float
    until: float = float("inf")


@dataclass
class Worker:
    process: BaseProcess
    started: float
    able_since: float
    frozen: bool = False

    @property
    def pid(self) -> int:
        assert self.process.pid
        return self.process.pid


@dataclass
class Tally:
    """What was done, for the report and for the judge."""

    did: Counter[str] = field(default_factory=Counter)
    committed: dict[str, str] = field(default_factory=dict)
    """job -> task"""
    rolled_back: set[str] = field(default_factory=set)
    cancel_asked: set[str] = field(default_factory=set)
    touched: list[Touched] = field(default_factory=list)
    deaths: dict[str, float] = field(default_factory=dict)
    """node -> when its process was killed"""
    errors: list[str] = field(default_factory=list)


class Fire:
    application: ClassVar[Any] = application
    """The module of the application: ``make_app``, ``work`` and ``SLOTS``."""
    cut_first: ClassVar[str] = "claim_limited"
    """Sessions are best cut in statements that match this."""
    hold: ClassVar[str] = "held_because = 'limit'"
    """The jobs whose rows are held."""

    def __init__(self, dsn: str, folder: Path, broken: str, rng: random.Random) -> None:
        self.dsn, self.folder, self.broken, self.rng = dsn, folder, broken, rng
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.tally = Tally()
        self.workers: list[Worker] = []
        self.app = self.application.make_app(dsn)
        self.burning = True
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([self.application.__name__])
        self._number = 0

    # -- workers ---------------------------------------------------------------------------------
    def start_worker(self) -> None:
        self._number += 1
        log = self.folder / f"worker-{self._number}.log"
        process = self._context.Process(
            target=self.application.work,
            args=(self.dsn, str(self.ledger), self.broken, str(log), self._slots()),
            daemon=True,
        )
        process.start()
        now = time.time()
        self.workers.append(Worker(process, now, now + SETTLE_SECONDS))

    def _slots(self) -> dict[str, int]:
        slots: dict[str, int] = self.rng.choice(self.application.SLOTS)
        return slots

    def able(self, now: float) -> set[int]:
        """The pids of the workers that can claim."""
        return {w.pid for w in self.workers if not w.frozen and w.able_since <= now}

    async def _nodes_of(self, pid: int) -> list[str]:
        async with await self._connect() as connection:
            rows = await connection.execute(
                "select id::text from leasework.node where pid = %s", [pid]
            )
            return [row[0] for row in await rows.fetchall()]

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(
            self.dsn, autocommit=True, application_name="fire"
        )

    async def kill(self) -> None:
        """Kill a worker and start another. Mostly a certificate of its death is written, as a
        supervisor does; else its lease has to expire."""
        able = [w for w in self.workers if not w.frozen and w.started < time.time() - 1]
        if not able:
            return
        worker = self.rng.choice(able)
        nodes = await self._nodes_of(worker.pid)
        if worker.frozen:
            return
        self.workers.remove(worker)
        worker.process.kill()
        at = time.time()
        await asyncio.to_thread(worker.process.join)
        self.tally.deaths.update(dict.fromkeys(nodes, at))
        self.tally.did["kill -9"] += 1
        self.start_worker()
        if self.rng.random() < 0.8:
            store = await self.app.store()
            for node in nodes:
                with suppress(LeaseworkError):
                    await store.certify(UUID(node), 5.0)

    async def freeze(self, seconds: float) -> None:
        free = [w for w in self.workers if not w.frozen and w.started < time.time() - 1]
        if sum(w.frozen for w in self.workers) >= 2 or not free:
            return
        worker = self.rng.choice(free)
        worker.frozen = True
        os.kill(worker.pid, signal.SIGSTOP)
        self.tally.did["freeze"] += 1
        await asyncio.sleep(seconds)
        os.kill(worker.pid, signal.SIGCONT)
        worker.frozen, worker.able_since = False, time.time() + SETTLE_SECONDS

    async def cut(self) -> None:
        """End a session of a worker, best of all in a claim."""
        async with await self._connect() as connection:
            rows = await connection.execute(
                "select a.pid, pg_terminate_backend(a.pid) from pg_stat_activity a "
                "where a.application_name like 'leasework%%' and a.pid <> pg_backend_pid() "
                "order by a.state = 'active' and a.query ~ %s desc, random() limit 1",
                [self.cut_first],
            )
            self.tally.did["cut"] += bool(await rows.fetchall())

    # -- what applications do --------------------------------------------------------------------
    async def enqueue(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Enqueue jobs in a transaction that commits late, soon or never."""
        waiting = await self._waiting(connection)
        kinds = [kind for kind in KINDS if waiting[kind.task] < kind.most_waiting]
        if not kinds:
            await asyncio.sleep(0.05)
            return
        requests = [self._request(kinds) for _ in range(self.rng.randint(1, 12))]
        late = self.rng.random() < 0.2
        keep = self.rng.random() < 0.85
        async with connection.transaction(force_rollback=not keep):
            rows = await connection.execute(
                "select id::text from leasework.enqueue(%s)", [json.dumps(requests)]
            )
            ids = [row[0] for row in await rows.fetchall()]
            if late:
                await asyncio.sleep(self.rng.uniform(0.2, 3))
        if keep:
            self.tally.committed |= {
                job: request["task"] for job, request in zip(ids, requests, strict=True)
            }
        else:
            self.tally.rolled_back.update(ids)
        self.tally.did["enqueue"] += 1
        self.tally.did["late commit"] += late and keep
        self.tally.did["rolled back"] += not keep

    def _request(self, kinds: list[Kind]) -> dict[str, Any]:
        return self.rng.choice(kinds).request(self.rng)

    async def _waiting(self, connection: psycopg.AsyncConnection[Any]) -> Counter[str]:
        rows = await connection.execute("select task_name, count(*) from leasework.job group by 1")
        return Counter(dict(await rows.fetchall()))

    async def hold_rows(self, connection: psycopg.AsyncConnection[Any]) -> None:
        async with connection.transaction():
            rows = await connection.execute(
                f"select id::text from leasework.job where {self.hold} "
                "order by random() limit 4 for update skip locked".encode()
            )
            ids = frozenset(row[0] for row in await rows.fetchall())
            touched = Touched(ids, time.time())
            self.tally.touched.append(touched)
            await asyncio.sleep(self.rng.uniform(0.1, 1.5))
        touched.until = time.time()
        self.tally.did["rows held"] += len(ids)

    # -- what people do --------------------------------------------------------------------------
    async def some_waiting(self, most: int) -> list[str]:
        async with await self._connect() as connection:
            rows = await connection.execute(
                "select id::text from leasework.job order by random() limit %s", [most]
            )
            return [row[0] for row in await rows.fetchall()]

    async def people(self) -> None:
        """Cancel, retry or move some jobs."""
        ids = await self.some_waiting(3)
        if not ids:
            return
        touched = Touched(frozenset(ids), time.time())
        self.tally.touched.append(touched)
        what = self.rng.choice(("cancel", "cancel", "retry", "reprioritize"))
        store = await self.app.store()
        priority = self.rng.choice((-1, 0, 1))
        for job in ids:
            if what == "cancel":
                self.tally.cancel_asked.add(job)
                await store.cancel(UUID(job), "fire", None)
            elif what == "retry":
                await store.retry(UUID(job), None)
            else:
                await store.reprioritize(UUID(job), priority)
        touched.until = time.time()
        self.tally.did[what] += len(ids)

    async def change(self) -> None:
        """Change a limit, or one of its keys, for a while."""
        store = await self.app.store()
        what = self.rng.choice(
            ("limit", "key", "rate", "pause limit", "pause key", "pause queue", "pause task")
        )
        name = self.rng.choice(("one", "two", "whole", "vendor", "region"))
        key: str | None = None
        number: int | None = None
        rate = burst = paused = None
        if what in ("pause queue", "pause task"):
            kind, least = what.removeprefix("pause "), 0.3 if what == "pause queue" else 3.0
            subject = self.rng.choice(QUEUES if kind == "queue" else [each.task for each in KINDS])
            await store.pause(kind, subject, True, "", None)
            await self._rest(least, 4 * least)
            await store.pause(kind, subject, False, "", None)
        else:
            if what == "rate":
                name = self.rng.choice(("spaced", "tokens", "vendor"))
                rate, burst = self.rng.choice(((5.0, 40.0), (40.0, 60.0), (80.0, 90.0)))
            elif what.startswith("pause"):
                paused = True
            else:
                number = self.rng.randint(1, 5)
            if "key" in what:
                name = "two" if name == "whole" else name
                key = ODD if self.rng.random() < 0.1 else str(self.rng.randrange(KEYS))
            await store.set_limit(name, key, number, rate, burst, paused, False, None)
            await self._rest(0.5, 4)
            await store.set_limit(name, key, None, None, None, None, True, None)
        self.tally.did[what] += 1

    async def _rest(self, least: float, most: float) -> None:
        """Sleep, but no longer than the fire burns."""
        end = time.time() + self.rng.uniform(least, most)
        while self.burning and time.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    # -- the fire --------------------------------------------------------------------------------
    async def burn(self, seconds: float) -> None:
        for _ in range(WORKERS):
            self.start_worker()
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(self._with_connection(self.enqueue, 0.0, 0.04))
            group.create_task(self._with_connection(self.hold_rows, 0.1, 1.0))
            group.create_task(self._again(self.kill, 0.3, 0.9))
            group.create_task(self._again(self._freezes, 0.5, 2.0))
            group.create_task(self._again(self.cut, 1.0, 3.0))
            group.create_task(self._again(self.people, 0.2, 1.0))
            for _ in range(2):
                group.create_task(self._again(self.change, 0.3, 2.0))
            await asyncio.sleep(seconds)
            self.burning = False
        for worker in self.workers:
            if not worker.process.is_alive():
                self.tally.errors.append(f"a worker ended with {worker.process.exitcode}")
        while len(self.workers) < 2:
            self.start_worker()

    async def _freezes(self) -> None:
        await self.freeze(self.rng.choice((0.3, 0.8, 1.5, 8.0 if self.burning else 0.1)))

    async def _again(self, act: Any, least: float, most: float) -> None:
        while self.burning:
            try:
                await act()
            except (LeaseworkError, psycopg.Error) as error:
                self.tally.errors.append(f"{act.__name__}: {error!r}"[:300])
            await self._rest(least, most)

    async def _with_connection(self, act: Any, least: float, most: float) -> None:
        async with await self._connect() as connection:

            async def once() -> None:
                await act(connection)

            once.__name__ = act.__name__
            await self._again(once, least, most)

    async def drain(self, seconds: float) -> int:
        """Wait until every job has ended. Return how many are left."""
        end = time.time() + seconds
        left = -1
        async with await self._connect() as connection:
            while left and time.time() < end:
                for worker in list(self.workers):
                    if not worker.process.is_alive():
                        self.workers.remove(worker)
                        self.start_worker()
                rows = await connection.execute("select count(*) from leasework.job")
                [[left]] = await rows.fetchall()
                await asyncio.sleep(0.1)
        return left

    async def stop(self) -> None:
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            await asyncio.to_thread(worker.process.join)
        await self.app.close()
