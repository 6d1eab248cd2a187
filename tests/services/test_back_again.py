"""After an outage one loop that gets through spares the others their back-off."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from leasehold import errors
from leasehold.env import Env
from leasehold.services.service import Loop, Service
from tests.support.wait import until_async


class Asker(Service):
    name = "asker"

    def __init__(self) -> None:
        self.asked = 0
        self.answered = False

    async def tick(self, now: datetime | None) -> float:
        self.asked += 1
        if not self.answered:
            raise errors.Unavailable("the link is down")
        return 60.0


async def test_who_gets_through_wakes_those_that_back_off():
    told: list[Any] = []
    one, two = Asker(), Asker()
    loops = [Loop(one, Env(), lambda *of, **what: None), Loop(two, Env(), lambda *of, **what: None)]
    for loop in loops:
        loop.on_back = lambda: [told.append(each) or each.wake() for each in loops if each.lost]
        loop.start()
    await until_async(lambda: two.asked >= 5, what="its back-off is seconds by now")
    one.answered = two.answered = True
    asked = two.asked
    loops[0].wake()
    async with asyncio.timeout(1.0):
        await until_async(lambda: not any(loop.lost for loop in loops))
    assert told == [loops[1]]
    assert two.asked == asked + 1
    for loop in loops:
        await loop.stop()
