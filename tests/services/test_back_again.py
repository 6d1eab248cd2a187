"""After an outage one loop that gets through spares the others their back-off."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from leasework import errors
from leasework.env import Env
from leasework.loops.service import Loop, Outage, Service
from leasework.tuning import Tuning
from tests.support.wait import until_async


class Asker(Service):
    name = "asker"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or errors.Unavailable("the link is down")
        self.asked = 0
        self.answered = False

    async def tick(self, now: datetime | None) -> float:
        self.asked += 1
        if not self.answered:
            raise self.error
        return 60.0


async def test_who_gets_through_wakes_those_that_back_off():
    told: list[Any] = []
    one, two = Asker(), Asker()
    loops = [Loop(one, Env(), lambda *of, **what: None), Loop(two, Env(), lambda *of, **what: None)]
    for loop in loops:
        loop.on_back = lambda: [told.append(each) or each.wake() for each in loops if each.lost]
        loop.start()
    await until_async(lambda: two.asked >= 6, 30, what="its back-off is seconds by now")
    one.answered = two.answered = True
    asked = two.asked
    loops[0].wake()
    async with asyncio.timeout(2.5):
        await until_async(lambda: not any(loop.lost for loop in loops))
    assert told == [loops[1]]
    assert two.asked == asked + 1
    for loop in loops:
        await loop.stop()


async def test_a_service_that_fails_again_and_again_reports_it_once():
    said: list[str] = []
    failing = Asker(errors.ServerError("the password is wrong"))
    loop = Loop(failing, Env(), lambda kind, **what: said.append(kind))
    loop.start()
    await until_async(lambda: failing.asked >= 4)
    await loop.stop()
    assert said == ["service_failed"]


async def test_a_lock_that_does_not_end_is_reported_even_soon_after_another_one(monkeypatch):
    monkeypatch.setattr(Tuning, "service_longest_pause", 0.01)
    monkeypatch.setattr(Tuning, "repeat_seconds", 0.5)
    said: list[str] = []
    blocked = Asker(errors.Conflict("a row is locked"))
    loop = Loop(blocked, Env(), lambda kind, **what: said.append(kind))
    loop.start()
    await until_async(lambda: said == ["service_failed"])
    blocked.answered = True
    loop.wake()
    asked = blocked.asked
    await until_async(lambda: blocked.asked > asked)
    blocked.answered = False
    loop.wake()
    await until_async(lambda: len(said) >= 3, what="reports of the second one, now and then")
    await loop.stop()


async def test_an_outage_is_told_once_and_its_end_only_when_the_database_has_answered():
    said: list[tuple[str, dict[str, Any]]] = []
    away, idle = Asker(), Asker()
    probes = 0

    async def probe() -> None:
        nonlocal probes
        probes += 1
        if not away.answered:
            raise errors.Unavailable("the link is down")

    outage = Outage(probe)
    loops = [
        Loop(each, Env(), lambda kind, **what: said.append((kind, what))) for each in (away, idle)
    ]
    for loop in loops:
        loop.outage = outage
        loop.start()
    await until_async(lambda: idle.asked >= 2 and away.asked >= 2)
    idle.answered = True  # from here on its rounds ask the database for nothing
    await until_async(lambda: probes >= 3 and away.asked >= 4)
    assert [(kind, what["service"]) for kind, what in said] == [("database_lost", "asker")]
    away.answered = True
    await until_async(lambda: not any(loop.lost for loop in loops))
    assert [kind for kind, _ in said] == ["database_lost", "database_back"]
    assert said[1][1]["seconds"] > 0
    for loop in loops:
        await loop.stop()
