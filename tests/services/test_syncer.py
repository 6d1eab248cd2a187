"""Whose definitions of the schedules stand, release by release."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from msgspec import structs

from leasework.config import Settings
from leasework.duties.syncer import Planned, Syncer
from leasework.errors import Unavailable
from leasework.loops.service import ServiceContext
from leasework.model.missed import Missed
from leasework.model.schedule import every
from leasework.tuning import Tuning
from tests.support.hand import Database, Process, a_database
from tests.support.requests import job_request


@pytest.fixture
async def made(migrated: str) -> AsyncIterator[Database]:
    async with a_database(migrated) as database:
        yield database


def planned(name: str) -> Planned:
    return Planned(name, every(seconds=60), job_request(), Missed.LATEST, 5.0)


def syncer(
    process: Process, schedules: Sequence[Planned], told: list[Any], users: Any = None
) -> Syncer:
    def emit(kind: str, **fields: Any) -> None:
        told.append((kind, *fields["kept"], *fields["dropped"]))

    context = ServiceContext(Settings(), process.env, emit, process.store, users or process.store)
    return Syncer(context, "r", schedules, process.guard, lambda: None)


async def test_definitions_of_a_release_that_came_and_went_unseen_do_not_stand(made: Database):
    names = "select name from leasework.schedule order by name"
    told: list[Any] = []
    process = made.process()
    await process.step()
    service = syncer(process, [planned("a")], told)
    assert await service.tick(None) == Tuning.sync_seconds
    assert await made.sql(names) == [("a",)]

    # between two heartbeats of ours
    newer = structs.replace(process.new_identity(), id=uuid4(), release="newer")
    token = await process.store.register(newer, 9.0, None)
    moment = await process.store.database_now(None)
    definition = planned("b").definition(moment)
    assert (await process.store.sync_schedules("default", "newer", [definition], None)).newest
    assert await process.store.leave(newer.id, token)
    await process.step(1.0)

    assert await service.tick(None) == pytest.approx(Tuning.sync_seconds - 1.0)
    assert await made.sql(names) == [("b",)], "looked at only now and then"
    process.clock.at += Tuning.sync_seconds
    assert await service.tick(None) == Tuning.sync_seconds
    assert await made.sql(names) == [("a",)]
    assert told == [("schedules_synced", "a"), ("schedules_synced", "a", "b")]


async def test_what_is_in_line_is_neither_written_nor_locked(made: Database):
    rows = "select ctid::text, xmin::text, xmax::text from leasework.schedule"
    process = made.process()
    await process.step()
    told: list[Any] = []
    service = syncer(process, [planned("a"), planned("b")], told)
    await service.tick(None)
    before = await made.sql(rows)
    process.clock.at += Tuning.sync_seconds
    await service.tick(None)
    assert len(before) == 2 and await made.sql(rows) == before
    assert len(told) == 1


@pytest.mark.parametrize(
    "by_hand",
    ["delete from leasework.schedule", "update leasework.schedule set next_at = null"],
)
async def test_a_schedule_that_somebody_deleted_loses_no_moment(made: Database, by_hand: str):
    process, told = made.process(), list[Any]()
    await process.step()
    service = syncer(process, [planned("a")], told)
    before = await process.store.database_now(None)
    await service.tick(None)
    await made.sql(by_hand)
    # a whole interval passes before the next look
    process.clock.at += Tuning.sync_seconds
    later = await process.store.database_now(None) + timedelta(seconds=Tuning.sync_seconds)
    await service.tick(later)
    assert told == [("schedules_synced", "a"), ("schedules_synced", "a")]
    [due] = await process.store.due_schedules("default", 9, later)
    assert due.next_at and before < due.next_at <= later, "the moment of which nobody knew"
    process.clock.at += Tuning.sync_seconds
    await service.tick(later)
    assert len(told) == 2, "it stays"


class NoConnection:
    def __init__(self) -> None:
        self.asked = 0

    async def sync_schedules(self, *given: Any) -> None:
        self.asked += 1
        raise Unavailable("too many connections for this role", sent=False)


async def test_a_look_that_changes_nothing_opens_no_further_connection(made: Database):
    """And where none is allowed, the schedules are stored over the one that is there."""
    process, none, told = made.process(), NoConnection(), []
    await process.step()
    service = syncer(process, [planned("a")], told, none)
    for look in range(3):
        assert await service.tick(None) == Tuning.sync_seconds
        assert (told, none.asked) == ([("schedules_synced", "a")], 1), look
        process.clock.at += Tuning.sync_seconds
