"""Results that cannot be stored, with every executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leasehold import App, Backoff
from leasehold.errors import JobFailed
from leasehold.model.states import State
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
