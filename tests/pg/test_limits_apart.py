"""An application that defines limits runs its jobs without limits by the same statements."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from leasework import App, Rate
from leasework.pg.connection.session import Session
from tests.support.wait import until_async

JOBS = 10
BY_CHANCE = ("leader/", "deadline/")
"""Whether a node comes to lead in so short a time."""


async def statements(dsn: str, monkeypatch: pytest.MonkeyPatch, limits: bool) -> Counter[str]:
    """All that the process sends while it enqueues plain jobs and runs them, by name."""
    app = App(dsn)
    ran: list[int] = []
    seen: Counter[str] = Counter()
    if limits:
        app.queue("tenants", fair="tenant")

        @app.task(limits=[app.limit("one", concurrency=1, rate=Rate(10, per=1.0))])
        async def limited() -> None: ...

    @app.task
    async def plain(number: int) -> None:
        ran.append(number)

    with monkeypatch.context() as patched:
        for way in ("fetch", "fetch_fast"):
            patched.setattr(Session, way, noting(getattr(Session, way), seen))
        node = await app.make_node()
        for duty in node._duties.values():
            await duty.stop()  # when they have work is chance
        async with app.state_for(node):
            await node.start()
            for number in range(JOBS):
                await plain.enqueue(number)
                await until_async(lambda n=number: n in ran, what="the job")
            await until_async(lambda: len(node.running) == 0, what="the last outcome")
            await node.stop()
    await app.close()
    return seen


def noting(fetch: Any, seen: Counter[str]) -> Any:
    def noted(self: Session, name: str, *more: Any) -> Any:
        seen[name] += 1
        return fetch(self, name, *more)

    return noted


async def test_jobs_without_limits_need_the_same_statements_beside_limits(
    dsn: str, migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = await statements(dsn, monkeypatch, limits=False)
    beside = await statements(dsn, monkeypatch, limits=True)
    assert {"job/enqueue_plain", "job/claim", "job/ack_completed"} <= without.keys()
    changed = {name for name in beside.keys() ^ without.keys() if not name.startswith(BY_CHANCE)}
    assert changed == {"limit/claim", "limit/sync"}
    assert without["job/enqueue_plain"] == beside["job/enqueue_plain"] == JOBS
