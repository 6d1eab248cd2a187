"""A dead node's jobs are found as far as it has claimed, and what waits behind is not read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from leasework import App, Context
from leasework.cli.overview import of_facts
from leasework.config import Settings
from leasework.env import Env
from leasework.pg.sql import statement
from leasework.store.store import Store
from leasework.tuning import Tuning
from leasework.watch.inspector import Inspector
from tests.pg.bench import Bench
from tests.support.wait import until_async

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


# -- jobs whose node does not exist ----------------------------------------------------------------
RAISED = "update leasework.job set priority = priority + 5 where node is not null"


async def freed_of(bench: Bench, *dead: UUID) -> list[UUID]:
    return [job.job for job in await bench.store.rescue(dead, 3, 100, None)]


async def test_a_running_job_whose_priority_somebody_changed_is_found_when_its_node_dies(
    bench: Bench, sql: Run
) -> None:
    job = await bench.claimed()
    await sql(RAISED)
    assert await bench.store.note_stranded(0, 100) == (0, []), "it lives"
    dead = await die(bench, sql)
    assert await freed_of(bench, dead) == [] and await bench.store.settle([dead]) == 1
    assert await bench.store.note_stranded(0, 100) == (0, [dead])
    assert await bench.store.deaths(10) != []
    assert await freed_of(bench, dead) == [job.id]


@pytest.mark.parametrize(
    "by_hand",
    ["truncate leasework.node cascade", RAISED, "delete from leasework.claimed_to"],
)
async def test_stranded_jobs_count_as_running_everywhere_and_status_says_why(
    app: App, bench: Bench, sql: Run, by_hand: str
) -> None:
    jobs = {await bench.enqueue() for _ in range(3)}
    await bench.claim()
    await sql(by_hand)
    dead = await die(bench, sql)
    if "truncate" not in by_hand:
        assert await bench.store.settle([dead]) == 1
    reports = await app.reports()

    async def found() -> list[str]:
        facts = await Inspector(reports, Env(), Settings()).facts()
        overview = of_facts(facts, "1")
        assert overview.figures["jobs"]["running"] == len(await app.jobs(state="running"))
        assert overview.figures["jobs"]["running"] == (await reports.queues(None))[0].running
        every = (one for cause in overview.found for one in (cause, *cause.symptoms))
        kinds = {problem.kind: problem for problem in every}
        return [one.sentence for kind, one in kinds.items() if kind == "jobs_stranded"]

    assert await found() == ["3 jobs are running on a node that does not exist"]
    assert {job.id for job in await app.jobs(state="running")} == jobs
    assert await bench.store.note_stranded(0, 100) == (0, [dead])
    assert await found() == [], "the rescuer finds them now"
    assert set(await freed_of(bench, dead)) == jobs
    assert await app.jobs(state="running") == []


async def test_the_leader_walks_and_frees_what_truncate_stranded(
    app: App, bench: Bench, sql: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tuning, "rescue_idle_seconds", 0.1)
    ran: list[UUID] = []

    @app.task(name="t")
    async def run(ctx: Context) -> None:
        ran.append(ctx.job_id)

    lost = await bench.claimed()
    async with app.node() as node:
        await until_async(node.leads, 30)
        assert ran == []
        await sql("truncate leasework.node cascade")  # the leader goes on under another id
        await until_async(lambda: ran, 60, "the stranded job to run again")
    assert ran == [lost.id]
    # as of a node of which nothing else is known
    told = await sql("select fields ->> 'dead' from leasework.event where kind = 'job_rescued'")
    assert told == [(f"?:0:{str(bench.node)[-6:]}",)]


async def test_what_the_rescuer_finds_anyway_is_not_noted_again(bench: Bench, sql: Run) -> None:
    await bench.claimed()
    await die(bench, sql)
    rows = (
        "select xmin::text from leasework.death union all"
        " select xmin::text from leasework.claimed_to"
    )
    before = await sql(rows)
    assert await bench.store.note_stranded(0, 100) == (0, [])
    assert await sql(rows) == before


async def test_the_walk_goes_over_all_pages_and_begins_again(bench: Bench, sql: Run) -> None:
    await bench.claimed()
    await sql(MANY)
    await bench.claim(1)
    await sql("update leasework.job set payload = '[]' where node is null")  # moves them behind
    await sql("truncate leasework.node cascade")
    await sql("truncate leasework.claimed_to")
    page, found, steps = 0, list[UUID](), 0
    while page or not steps:
        page, more = await bench.store.note_stranded(page, 100)
        found += more
        steps += 1
    assert found == [bench.node] and steps > 2
    assert len(await freed_of(bench, bench.node)) == 2


async def test_a_claim_of_a_node_that_has_just_registered_is_never_taken_for_stranded(
    bench: Bench, sql: Run, migrated: str
) -> None:
    """A walk has seen the claim of a dead node. Before it notes that, the job passes to a node that
    was not there when the walk began."""
    job = await bench.claimed()
    await sql("truncate leasework.node cascade")
    await sql("truncate leasework.claimed_to")
    store = Store(Settings(dsn=migrated), "second")
    async with await psycopg.AsyncConnection.connect(migrated) as other:
        stops = "insert into leasework.claimed_to values (%s, 'default', 1, 1)"
        await other.execute(stops, [bench.node])
        walk = asyncio.create_task(bench.store.note_stranded(0, 100))
        await until_async(lambda: waits_for_a_lock(sql))
        new = await Bench.make(store, bench.user)
        await sql("update leasework.job set node = null, claim_token = null")  # as a rescue does
        [claim] = await new.claim()
        await other.rollback()
    assert (claim.id, await walk) == (job.id, (0, [bench.node])), "it notes the dead one only"
    assert await freed_of(new, bench.node, new.node) == []
    assert await new.store.note_stranded(0, 100) == (0, [])
    assert len((await new.ack(claim)).written) == 1
    await store.close()


async def waits_for_a_lock(sql: Run) -> bool:
    return bool(await sql("select 1 from pg_locks where not granted"))


async def test_a_claim_that_commits_beside_a_walk_stays(bench: Bench, sql: Run) -> None:
    job = await bench.enqueue()
    new = await Bench.make(bench.store, bench.user)
    params = new.claim_params(limit=1)
    await bench.user.execute(statement("job/claim", "leasework"), params)
    assert await bench.store.note_stranded(0, 100) == (0, [])
    await bench.user.commit()
    assert await bench.store.note_stranded(0, 100) == (0, [])
    assert await bench.state(job) == "running" and await freed_of(bench, new.node) == []


async def test_one_step_of_the_walk_reads_its_pages_and_no_others(bench: Bench, sql: Run) -> None:
    await bench.claimed()
    await sql(MANY)
    await sql("analyze leasework.job")
    params = {"page": 100, "pages": 50}
    name = statement("job/note_stranded", "leasework")
    [[[found]]] = await sql(f"explain (analyze, buffers, format json) {name}", params)
    assert "Tid Range Scan" in str(found), found
    assert found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"] < 50 + 20
