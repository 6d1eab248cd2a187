"""A pause that arrives while a claim waits for its turn."""

from __future__ import annotations

import asyncio
from typing import Any

from leasework import App


async def test_a_claim_that_was_chosen_before_a_pause_starts_nothing(app: App, sql: Any) -> None:
    @app.task(queue="other")
    async def other() -> None: ...

    async with app.node() as node:
        claimer = node._claimer
        asked, claim = asyncio.Event(), claimer.claim

        def noted(*given: Any) -> Any:
            asked.set()
            return claim(*given)

        claimer.claim = noted  # type: ignore[method-assign]
        async with claimer._one:  # another claim is under way
            asked.clear()
            await other.enqueue()
            await asked.wait()
            claimer.pause(frozenset({("queue", "other")}))
        async with claimer._one:  # the claim that has waited has ended
            pass
        assert await sql("select state from leasework.jobs") == [("available",)]
