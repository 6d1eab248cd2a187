"""What happens while a handler blocks the event loop of its worker."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from leasework import App
from leasework.errors import Unavailable
from leasework.store.store import Store
from tests.support.wait import until

RETURNED = "select count(*) from leasework.job where not fresh and node is null"


async def test_what_could_not_be_given_back_at_once_is_given_back_later(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, failures = App(migrated, recover_within=9), []
    give_back: Any = Store.give_back

    async def fails_once(store: Store, *given: Any) -> int:
        if not failures:
            failures.append(given)
            raise Unavailable("the link is down", sent=True)
        count: int = await give_back(store, *given)
        return count

    @app.task(name="block")
    async def block() -> int:
        with psycopg.connect(migrated, autocommit=True) as connection:

            def returned() -> bool:
                row = connection.execute(RETURNED).fetchone()
                return row == (5,)

            until(returned, 60, "the jobs that wait behind it")
        return len(failures)

    @app.task(name="nap")
    async def nap() -> None: ...

    job = await block.enqueue()
    for _ in range(5):
        await nap.enqueue()
    monkeypatch.setattr(Store, "give_back", fails_once)
    async with app.node():
        assert await job.wait(90) == 1
    await app.close()
