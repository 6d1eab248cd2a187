"""Deadlines in the simulated world: one verdict each; and broken builds are found."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from leasework_lab.sim.cluster import run_seed
from leasework_lab.sim.rows import SimDatabase
from leasework_lab.sim.store import SimStore

SEEDS = 8


class SweepWhateverTheState(SimStore):
    """A met deadline that has passed is breached as well."""

    async def sweep(self, limit: int, now: Any) -> Any:
        moment = self.db.at(now)
        for row in self.db.deadlines.values():
            if row.state == "met" and row.due_at and row.due_at <= moment:
                row.state = "armed"
        return await super().sweep(limit, now)


class BreachThatIsForgotten(SimStore):
    """The verdict is not written with the callback, as where they are two transactions."""

    async def sweep(self, limit: int, now: Any) -> Any:
        swept = await super().sweep(limit, now)
        for breach in swept.breaches[:1]:
            self.db.deadlines[breach.id].state = "armed"
        return swept


class MetWhateverTheVerdict(SimStore):
    """Whoever writes last wins."""

    def __init__(self, db: SimDatabase) -> None:
        super().__init__(db)
        finish = db.finish

        def finish_and_meet(row: Any, state: str, *args: Any, **kwargs: Any) -> None:
            finish(row, state, *args, **kwargs)
            for promise in db.deadlines.values():
                if promise.id == row.id and state == "completed":
                    promise.state, promise.job_state = "met", state

        db.finish = finish_and_meet  # type: ignore[method-assign]


class NoCallback(SimStore):
    async def sweep(self, limit: int, now: Any) -> Any:
        swept = await super().sweep(limit, now)
        for breach in swept.breaches:
            self.db.jobs.pop(breach.callback_job, None)
        return swept


class NotJudgedByAck(SimStore):
    """The completion forgets the deadline."""

    async def ack(self, *args: Any) -> Any:
        before = {key: (r.state, r.closed_at) for key, r in self.db.deadlines.items()}
        answer = await super().ack(*args)
        for key, (state, closed_at) in before.items():
            row = self.db.deadlines[key]
            row.state, row.closed_at = state, closed_at
        return answer


BROKEN = [
    SweepWhateverTheState,
    BreachThatIsForgotten,
    MetWhateverTheVerdict,
    NoCallback,
    NotJudgedByAck,
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_deadline_is_found(broken: Any):
    for seed in range(SEEDS):
        found = run_seed(seed, make_store=broken).violations
        if any("DeadlineOnce" in what for what in found):
            return
    raise AssertionError(f"{SEEDS} seeds did not find it")


def test_each_deadline_of_these_seeds_has_one_verdict_and_there_are_some_of_each():
    states: Counter[str] = Counter()
    for seed in range(4 * SEEDS):
        stores: list[SimStore] = []

        def make(db: SimDatabase, stores: list[SimStore] = stores) -> SimStore:
            stores.append(SimStore(db))
            return stores[-1]

        result = run_seed(seed, make_store=make)
        assert not result.violations, (seed, result.violations)
        states.update(row.state for row in stores[0].db.deadlines.values())
    assert min(states[state] for state in ("met", "breached", "cancelled")) >= 5, states


def test_the_ids_of_callbacks_grow_as_the_databases_do():
    from datetime import UTC, datetime, timedelta

    moment = datetime(2026, 1, 1, tzinfo=UTC)
    db = SimDatabase(lambda: moment)
    ids: list[UUID] = [db.new_id(moment + timedelta(milliseconds=n // 2)) for n in range(10)]
    assert ids == sorted(ids) and {i.version for i in ids} == {7}
