"""Results that cannot be stored, with every executor."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasework import App, Backoff, Context
from leasework.errors import JobFailed
from leasework.model.states import State
from leasework.testing import drain
from tests.pg import unstorable as results
from tests.pg.unstorable import RESULTS


@pytest.mark.parametrize("executor", ["async", "thread", "process"])
async def test_a_handler_whose_result_cannot_be_stored_never_runs_again(
    app: App, executor: Any, tmp_path: Path
) -> None:
    file = tmp_path / "runs"
    function = results.later if executor == "async" else results.now
    work = app.task(name="t", executor=executor, backoff=Backoff(base=0.01))(function)

    async with app.node(queues={"default": 3}):
        jobs = {what: await work.enqueue(what=what, file=str(file)) for what in RESULTS}
        good = [await work.enqueue(file=str(file)) for _ in range(5)]
        for what, job in jobs.items():
            with pytest.raises(JobFailed, match=RESULTS[what][1]):
                await job.wait(60)
            assert (await job.get()).state is State.DISCARDED
        assert [await job.wait(60) for job in good] == [1] * 5
    assert sorted(file.read_text().split("\n")) == sorted([*RESULTS, *[""] * 6])


async def test_the_number_of_the_last_attempt_counts_runs_that_a_death_ended(
    app: App, sql: Any
) -> None:
    seen = []

    @app.task(name="t", max_attempts=2, backoff=Backoff(base=0, jitter=0))
    async def work(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.max_attempts))
        raise LookupError

    await work.enqueue()
    # as a rescue leaves it: its worker died in the first run
    await sql("update leasework.job set attempt = 1, crashes = 1")
    await drain(app, until=timedelta(seconds=1))
    assert seen == [(2, 3), (3, 3)]
    [record] = await app.jobs()
    assert record.state == State.DISCARDED
