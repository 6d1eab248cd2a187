"""A dead node's jobs are found as far as it has claimed, and what waits behind is not read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from leasework.pg.sql import statement
from tests.pg.bench import Bench

Run = Callable[..., Awaitable[list[Any]]]
AHEAD = 10_000
"""So many seats ahead a claim notes how far it goes."""
WAITING = 30_000
LATER_SEATS = (
    "select setval('leasework.seat_seq', (select last_value from leasework.seat_seq) + %(n)s)"
)
MANY = f"""
insert into leasework.job (id, queue, task_name, payload)
select gen_random_uuid(), 'default', 't', '{{}}' from generate_series(1, {WAITING})
"""


async def pass_seats(sql: Run, count: int = 2 * AHEAD) -> None:
    await sql(LATER_SEATS, {"n": count})


async def die(bench: Bench, sql: Run) -> UUID:
    await sql("delete from leasework.node where id = %(node)s", {"node": bench.node})
    return bench.node


async def noted(sql: Run) -> list[tuple[Any, ...]]:
    return await sql("select queue, level, seat from leasework.claimed_to order by 1, 2")


async def test_all_jobs_of_a_dead_node_are_found_however_far_it_has_claimed(
    bench: Bench, sql: Run
) -> None:
    jobs = []
    for priority in (0, 5):
        for _ in range(3):
            jobs.append((await bench.claimed(priority=priority)).id)
            await pass_seats(sql)
    back = await bench.claimed()
    await bench.store.give_back(bench.node, [(back.id, back.claim_token)])
    assert [job.id for job in await bench.claim()] == [back.id], "a level of its own"
    await die(bench, sql)
    freed = await bench.store.rescue([bench.node], 3, 100, None)
    assert {job.job for job in freed} == {*jobs, back.id}


async def test_jobs_claimed_by_advisory_locks_are_found_as_well(bench: Bench, sql: Run) -> None:
    jobs = []
    for _ in range(3):
        jobs.append(await bench.enqueue())
        await bench.store.claim_candidates(bench.node, 1, jobs[-1:], 1, None)
        await pass_seats(sql)
    await die(bench, sql)
    assert {job.job for job in await bench.store.rescue([bench.node], 3, 100, None)} == set(jobs)


async def test_a_claim_whose_answer_was_lost_is_given_back_however_far_it_was(
    bench: Bench, sql: Run
) -> None:
    known = await bench.claimed()
    await pass_seats(sql)
    unknown = await bench.claimed()
    epoch = await bench.store.new_epoch(bench.node, await token(bench, sql), 2)
    assert epoch == 2
    assert await bench.store.give_back_unknown(bench.node, epoch, [known.claim_token]) == 1
    assert (await bench.state(known.id), await bench.state(unknown.id)) == ("running", "available")


async def token(bench: Bench, sql: Run) -> int:
    [(found,)] = await sql("select token from leasework.node where id = %(n)s", {"n": bench.node})
    return int(found)


async def test_claims_seldom_note_how_far_they_go(bench: Bench, sql: Run) -> None:
    await bench.claimed()
    [(*_, seat)] = before = await noted(sql)
    for _ in range(3):
        await bench.claimed()
    assert await noted(sql) == before
    await pass_seats(sql)
    await bench.claimed()
    [(*level, later)] = await noted(sql)
    assert level == ["default", 1]
    assert later > seat + AHEAD


@pytest.mark.parametrize("name", ["job/rescue", "node/settle", "job/give_back_unknown"])
async def test_to_find_a_nodes_jobs_reads_nothing_of_what_waits_behind(
    bench: Bench, sql: Run, name: str
) -> None:
    await bench.claimed()
    params = {
        "nodes": [bench.node],
        "node": bench.node,
        "epoch": 1,
        "known": [],
        "max_crashes": 3,
        "limit": 100,
        "now": None,
    }
    text = f"explain (analyze, buffers, format json) {statement(name, 'leasework')}"

    async def pages() -> int:
        await sql("begin")
        [[[found]]] = await sql(text, params)
        await sql("rollback")
        return int(found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"])

    if name != "job/give_back_unknown":
        await die(bench, sql)
    await pages()  # of the catalog, too
    few = await pages()
    await pass_seats(sql)
    await sql(MANY)
    await sql("analyze leasework.job")
    await pages()
    assert await pages() < few + 20, "a page holds some 100 of the jobs that wait"


async def test_what_is_noted_of_a_dead_node_goes_when_all_its_jobs_are_free(
    bench: Bench, sql: Run
) -> None:
    job = await bench.claimed()
    dead = await die(bench, sql)
    async with bench.user.cursor() as cursor:
        await cursor.execute("select 1 from leasework.job where id = %s for update", [job.id])
        assert await bench.store.rescue([dead], 3, 100, None) == []
        assert await bench.store.settle([dead, uuid4()]) == 0
        assert len(await noted(sql)) == 1
    await bench.user.rollback()
    assert [freed.job for freed in await bench.store.rescue([dead], 3, 100, None)] == [job.id]
    assert await bench.store.settle([dead]) == 1
    assert await noted(sql) == []
