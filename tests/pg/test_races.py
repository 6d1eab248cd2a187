"""Two real sessions that want the same job at the same time.

Each test was seen to fail with its protection taken out.
"""

from __future__ import annotations

import asyncio

import pytest

from leasehold.model.states import State
from tests.pg.bench import Bench


@pytest.mark.parametrize("state", [State.COMPLETED, State.RETRYABLE, State.DISCARDED])
async def test_an_ack_that_meets_a_change_of_its_row_is_written_after_it(
    bench: Bench, state: State
) -> None:
    """The row that the ack waited for is a newer one than the ack's snapshot shows."""
    job = await bench.claimed()
    await bench.user.execute("update leasehold.job set progress = 0.5 where id = %s", [job.id])
    ack = asyncio.create_task(bench.ack(job, state=state))
    await bench.waits_for_lock()
    await bench.user.commit()
    assert await ack == {job.id}
    assert await bench.state(job.id) is state


async def test_an_ack_that_meets_a_cancel_ends_the_job(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.user.execute(
        "update leasehold.job set cancel_requested = true where id = %s", [job.id]
    )
    ack = asyncio.create_task(bench.ack(job, state=State.RETRYABLE))
    await bench.waits_for_lock()
    await bench.user.commit()
    assert await ack == {job.id}
    assert await bench.state(job.id) is State.CANCELLED


async def test_an_ack_that_meets_a_requeue_is_refused(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.user.execute(
        "update leasehold.job set node = null, claim_token = null where id = %s", [job.id]
    )
    ack = asyncio.create_task(bench.ack(job))
    await bench.waits_for_lock()
    await bench.user.commit()
    assert await ack == set()
    assert await bench.state(job.id) is State.AVAILABLE
