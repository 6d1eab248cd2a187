"""Helpers for tests of applications that use leasehold.

In conftest.py:

    import pytest
    from leasehold.testing import postgres_dsn

    from shop import app

    @pytest.fixture
    async def database():
        with postgres_dsn() as dsn:        # a fresh database with leasehold's schema
            app.configure(dsn=dsn)
            yield dsn
            await app.close()              # the next test has another database

In a test:

    async def test_signing_up_sends_a_mail(database):
        await sign_up("kim@example.org")
        await assert_enqueued(app, send_mail, to="kim@example.org")
        [record] = await drain(app)        # run the waiting jobs here
        assert record.state == "completed"
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from typing import Any
from uuid import UUID

from leasehold.app import App, Task
from leasehold.config import Limits
from leasehold.env import Env
from leasehold.errors import JobNotFound, NotEnqueued, WaitTimeout, shorten
from leasehold.model.job import JobRecord, encode
from leasehold.node import Node
from leasehold.pg.users.rival import RivalSession, open_rival

_LOOK_SECONDS = 0.01
_SHOWN = 20
"""The most jobs that a failing assertion lists."""


async def drain(
    app: App, *, queues: Mapping[str, int] | None = None, timeout: float = 30.0
) -> list[JobRecord]:
    """Run all available jobs, and the jobs that they enqueue, until none is left.

    It runs in this process and does all that a worker does, except schedules. Returns the records
    of the jobs that ran, in the order of their claims. A job without history has none. Delayed
    jobs, and failed jobs whose next attempt is not due, stay. ``queues`` is as for ``App.node``.
    After ``timeout`` seconds it cancels the running jobs, gives them back, and raises WaitTimeout.
    """
    node = await app.make_node(queues, schedules=False)
    ran: dict[UUID, None] = {}
    _note_claims(node, ran)
    async with app.state_for(node):
        await _drain(app, node, ran, timeout)
    records = []
    for job in ran:
        try:
            records.append(await app.get(job))
        except JobNotFound:
            continue
    return records


async def _drain(app: App, node: Node, ran: dict[UUID, None], timeout: float) -> None:
    await node.start()
    try:
        async with asyncio.timeout(timeout):
            await _until_idle(app, node, ran)
    except TimeoutError:
        left = [claim.job.task for claim in node.running.snapshot()]
        node.executor.end_all("stopping")
        raise WaitTimeout(
            f"jobs were left after {timeout:g} s",
            got=left,
            do="Raise timeout=, or see what these tasks wait for",
        ) from None
    finally:
        await asyncio.shield(node.stop())


def _note_claims(node: Node, ran: dict[UUID, None]) -> None:
    submit = node.executor.submit

    def noting(lane: Any, claims: Any) -> None:
        ran.update((claim.job.id, None) for claim in claims)
        submit(lane, claims)

    node.executor.submit = noting  # type: ignore[method-assign]


async def _until_idle(app: App, node: Node, ran: dict[UUID, None]) -> None:
    store = await app.store()
    quiet = 0
    while quiet < 2:  # the first time, a claim may be under way
        before = len(ran), len(node.running)
        waiting = node.executor.lanes.keys() & set((await store.summary(None)).queues)
        changed = before != (len(ran), len(node.running))
        quiet = 0 if waiting or changed or len(node.running) else quiet + 1
        await asyncio.sleep(_LOOK_SECONDS)


async def assert_enqueued(app: App, task: Task[Any, Any] | str, **arguments: Any) -> JobRecord:
    """Assert that a job of ``task`` with (at least) these arguments was enqueued, whatever its
    state. Return the newest such job. Searches the 10,000 newest jobs of the task. Raises
    NotEnqueued, an AssertionError."""
    name = task if isinstance(task, str) else task.name
    # as the database returns them
    wanted = json.loads(encode(f"arguments of {name}", arguments, Limits.payload_bytes))
    records = await app.jobs(task=name, limit=10_000)
    for record in records:
        payload = record.payload if isinstance(record.payload, dict) else {}
        if all(key in payload and payload[key] == value for key, value in wanted.items()):
            return record
    seen = "; ".join(shorten(json.dumps(r.payload, default=str)) for r in records[:_SHOWN])
    raise NotEnqueued(
        f"no job of {name} has the arguments {json.dumps(wanted)}",
        got=f"{len(records)} with other arguments: {seen}" if records else "none at all",
    )


def open_rival_session(
    database: App | str, beside: Any = None
) -> AbstractContextManager[RivalSession]:
    """Open a second real session on the database of ``database`` (an App or a DSN), for tests of
    locks. ``beside`` is your session, from which it must differ: see
    :meth:`RivalSession.differs_from`. Raises SameSession."""
    dsn = database if isinstance(database, str) else database.settings.dsn
    return open_rival(dsn, beside)


def _rival_session() -> Iterator[Callable[..., RivalSession]]:
    """A pytest fixture: ``rival_session(app_or_dsn, beside=connection)`` opens a second real
    session, which ends with the test. Import it in conftest.py: ``from leasehold.testing import
    rival_session``. Its arguments are those of :func:`open_rival_session`."""
    with ExitStack() as stack:

        def make(database: App | str, beside: Any = None) -> RivalSession:
            return stack.enter_context(open_rival_session(database, beside))

        yield make


def __getattr__(name: str) -> Any:
    if name == "rival_session":
        import pytest  # installed only for tests

        fixture = pytest.fixture(name="rival_session")(_rival_session)
        globals()[name] = fixture
        return fixture
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _server() -> Any:
    from leasehold.embedded import EmbeddedServer

    return EmbeddedServer.start()  # ends with the last process that uses it


@contextmanager
def postgres_dsn(server: str | None = None, *, schema: str = "leasehold") -> Iterator[str]:
    """Create a database with leasehold's schema, yield its DSN, a ``postgresql://`` URL, and drop
    it at the end.

    ``server`` is the DSN of a server whose role may create databases. The default is the
    environment's ``LEASEHOLD_TEST_DSN``, or else the embedded PostgreSQL, started on first use.
    """
    from leasehold.pg.schema.scratch import scratch_database

    server = server or os.environ.get("LEASEHOLD_TEST_DSN") or _server().dsn
    name = f"leasehold_test_{Env().new_id().hex}"
    with scratch_database(server, name, schema) as dsn:
        yield dsn
