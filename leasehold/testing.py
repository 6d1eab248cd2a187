"""For tests of applications that use leasehold.

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
        [record] = await drain(app)        # run what waits, here and now
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
"""So many jobs are listed by an assertion that fails."""


async def drain(
    app: App, *, queues: Mapping[str, int] | None = None, timeout: float = 30.0
) -> list[JobRecord]:
    """Run every job that is available, and those that they enqueue, until none is left.

    Runs in this process, with all that a worker does except schedules. Returns the records of
    the jobs that ran, in the order in which they were claimed; a job whose history is not kept
    has none. Delayed jobs and failed ones whose next attempt is not due stay (an attempt that is
    due runs as well). ``queues`` as for ``App.node``; ``timeout`` in seconds, after which
    WaitTimeout is raised and what still runs is cancelled and given back.
    """
    node = await app.make_node(queues, schedules=False)
    ran: dict[UUID, None] = {}
    _note_claims(node, ran)
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
    records = []
    for job in ran:
        try:
            records.append(await app.get(job))
        except JobNotFound:
            continue
    return records


def _note_claims(node: Node, ran: dict[UUID, None]) -> None:
    submit = node.executor.submit

    def noting(lane: Any, claims: Any) -> None:
        ran.update((claim.job.id, None) for claim in claims)
        submit(lane, claims)

    node.executor.submit = noting  # type: ignore[method-assign]


async def _until_idle(app: App, node: Node, ran: dict[UUID, None]) -> None:
    store = await app.store()
    quiet = 0
    while quiet < 2:  # a claim may be on its way at the first look
        before = len(ran), len(node.running)
        waiting = node.executor.lanes.keys() & set((await store.summary(None)).queues)
        changed = before != (len(ran), len(node.running))
        quiet = 0 if waiting or changed or len(node.running) else quiet + 1
        await asyncio.sleep(_LOOK_SECONDS)


async def assert_enqueued(app: App, task: Task[Any, Any] | str, **arguments: Any) -> JobRecord:
    """Assert that a job of ``task`` with (at least) these arguments was enqueued, whatever became
    of it since; the newest such is returned. Looks at the 10,000 newest jobs of the task. Raises
    NotEnqueued, an AssertionError."""
    name = task if isinstance(task, str) else task.name
    # as they come back from the database
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
    """A second real session on the database of ``database`` (an App or a DSN), for tests of locks.
    ``beside``: your session, from which it must differ; see :meth:`RivalSession.differs_from`.
    Raises SameSession."""
    dsn = database if isinstance(database, str) else database.settings.dsn
    return open_rival(dsn, beside)


def _rival_session() -> Iterator[Callable[..., RivalSession]]:
    """pytest's fixture: ``rival_session(app_or_dsn, beside=connection)`` opens a second real
    session, which ends with the test. ``from leasehold.testing import rival_session`` in your
    conftest.py; arguments as for :func:`open_rival_session`."""
    with ExitStack() as stack:

        def make(database: App | str, beside: Any = None) -> RivalSession:
            return stack.enter_context(open_rival_session(database, beside))

        yield make


def __getattr__(name: str) -> Any:
    if name == "rival_session":
        import pytest  # only where tests are run

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
    """The DSN, a ``postgresql://`` URL, of a fresh database that has leasehold's schema; dropped at
    the end.

    ``server`` is the DSN of a server whose role may create databases; default: the environment's
    ``LEASEHOLD_TEST_DSN``, else the embedded PostgreSQL, started when first asked for. A fixture
    of one line; see above.
    """
    from leasehold.pg.schema.scratch import scratch_database

    server = server or os.environ.get("LEASEHOLD_TEST_DSN") or _server().dsn
    name = f"leasehold_test_{Env().new_id().hex}"
    with scratch_database(server, name, schema) as dsn:
        yield dsn
