"""The list of jobs: counts of each state, selected rows, and the members of a batch."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from click.testing import CliRunner

from leasework.cli.root import root
from leasework.tuning import Tuning
from tests.pg.conftest import sql
from tests.web.conftest import Inside, Make
from tests.web.test_people import LOGIN, TOKENS, enter

__all__ = ["sql"]

OF_EACH = """
insert into leasework.job (id, queue, task_name, payload, ready, held_because, run_at)
select gen_random_uuid(), queue, task, '{}', because is null, because, now() + interval '1 hour'
from (values ('mail', 'send', null, 5), ('mail', 'send', 'scheduled', 4),
             ('bulk', 'load', 'retryable', 3), ('bulk', 'send', null, 2))
    k (queue, task, because, n), generate_series(1, n)
"""
DONE = """
insert into leasework.job_done (id, finished_at, queue, task_name, priority, run_at, created_at,
    max_attempts, attempt, crashes, state, payload)
select gen_random_uuid(), now(), queue, 'send', 0, now(), now(), 1, 1, 0, state, '{}'
from (values ('mail', 'completed', 7), ('bulk', 'completed', 1), ('mail', 'discarded', 6),
             ('bulk', 'cancelled', 2), ('bulk', 'quarantined', 1)) k (queue, state, n),
    generate_series(1, n)
"""


async def counts(inside: Inside, query: str = "") -> dict[str, str]:
    """What stands beside each state on the page of jobs."""
    page = await inside.http.get("/jobs", params={"q": query})
    assert page.status_code == 200, page.text
    return {
        state: count
        for state, count in re.findall(
            r'<span class="state \w+">(\w+)</span>(?: ([\d,+]+))?</a>', page.text
        )
    }


def many(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[arg-type]


async def test_each_state_has_its_count_of_the_filters_queue_and_task(make: Make, dsn: str):
    async with make() as inside:
        many(dsn, OF_EACH, DONE)
        whole = await counts(inside)
        assert whole == {
            "scheduled": "4", "available": "7", "running": "0", "retryable": "3",
            "completed": "8", "cancelled": "2", "discarded": "6", "quarantined": "1",
        }  # fmt: skip
        assert await counts(inside, "state:discarded") == whole, "to choose another state"
        assert await counts(inside, "queue:bulk") == {
            "scheduled": "0", "available": "2", "running": "0", "retryable": "3",
            "completed": "1", "cancelled": "2", "discarded": "0", "quarantined": "1",
        }  # fmt: skip
        of_task = await counts(inside, "task:load queue:bulk")
        assert of_task["retryable"] == "3" and of_task["completed"] == "0"
        assert of_task["available"] == of_task["running"] == "", "no index finds those of a task"
        assert set((await counts(inside, "args.a:1")).values()) == {""}
        page = (await inside.http.get("/jobs", params={"q": "queue:bulk"})).text
        assert "q=queue%3Abulk%20state%3Acancelled" in page, "a state keeps the queue"


async def test_the_counts_agree_with_the_queues_status_and_the_metric(make: Make, dsn: str):
    async with make() as inside:
        many(dsn, OF_EACH, DONE)
        found = await counts(inside)
        operator = await inside.app.operator("test", "test")
        rows = await operator.queues.all()
        assert int(found["available"]) == sum(row["available"] + row["limited"] for row in rows)
        summary = await operator.reports.summary(None)
        assert int(found["scheduled"]) + int(found["retryable"]) == summary.waiting
        assert int(found["quarantined"]) == summary.quarantined
        metrics = (await inside.http.get("/metrics")).text
        ready = re.findall(r"^leasework_queue_ready\{.*\} (\S+)$", metrics, re.M)
        assert int(found["available"]) + int(found["running"]) == sum(map(float, ready))


async def test_counts_are_exact_up_to_the_bound_and_say_when_there_are_more(make: Make, dsn: str):
    more = OF_EACH.replace("'scheduled', 4", f"'scheduled', {Tuning.page_rows}")
    async with make() as inside:
        many(dsn, more, DONE.replace("'discarded', 6", f"'discarded', {Tuning.page_rows - 1}"))
        found = await counts(inside)
        assert found["discarded"] == f"{Tuning.page_rows - 1:,}" and found["completed"] == "8"
        assert found["scheduled"].endswith("+")
        assert found["retryable"] in ("", "1+", "2+", "3+"), "perhaps behind those counted"
        many(dsn, DONE.replace("'discarded', 6", "'discarded', 2"))
        assert (await counts(inside))["discarded"] == f"{Tuning.page_rows:,}+"
        many(dsn, DONE.replace("'completed', 7", f"'completed', {2 * Tuning.page_rows}"))
        assert (await counts(inside))["completed"].endswith("+")


# -- selected rows ---------------------------------------------------------------------------------
ACTS = (
    "select fields ->> 'who', fields ->> 'act', fields ->> 'on', fields ->> 'reason'"
    " from leasework.event where kind = 'person_acted' order by id"
)


async def enqueued(sql: Any, count: int) -> list[UUID]:
    found = await sql(
        "select id from leasework.enqueue(%s)", (json.dumps([{"task": "send"}] * count),)
    )
    return [row[0] for row in found]


def ticked(*jobs: UUID) -> dict[str, str]:
    return {f"job:{job}": "on" for job in jobs}


async def test_an_act_on_the_selected_rows_is_one_on_each_of_them(make: Make, sql: Any):
    first, second, third = await enqueued(sql, 3)
    async with make() as inside:
        page = (await inside.http.get("/jobs")).text
        assert page.count('form="picked"') == 3 and f'name="job:{first}"' in page
        form = {"act": "cancel", "reason": "a wrong list", "q": "task:send"}
        answer = await inside.post("/jobs/selected", "/jobs", **form, **ticked(first, second))
        assert answer.headers["location"] == "/jobs?q=task%3Asend"
        assert "2 jobs cancelled" in (await inside.http.get("/jobs")).text
        states = dict(await sql("select id, state from leasework.jobs"))
        assert states == {first: "cancelled", second: "cancelled", third: "available"}
        reason = "select distinct last_error from leasework.job_done"
        assert await sql(reason) == [("a wrong list",)]
        assert [tuple(row) for row in await sql(ACTS)] == [
            ("local", "cancel", f"job {first}", "a wrong list"),
            ("local", "cancel", f"job {second}", "a wrong list"),
        ]
        assert "a wrong list" in (await inside.http.get(f"/jobs/{first}")).text
        await inside.post("/jobs/selected", "/jobs", act="retry", **ticked(first))
        await inside.post("/jobs/selected", "/jobs", act="discard", **ticked(third, second))
        said = (await inside.http.get("/jobs")).text
        assert "1 job discarded. 1 left as before" in said
        assert dict(await sql("select id, state from leasework.jobs")) == {
            first: "available", second: "cancelled", third: "discarded",
        }  # fmt: skip


async def test_a_selection_of_nothing_or_of_what_is_no_job_is_refused(make: Make, sql: Any):
    async with make() as inside:
        none = await inside.post("/jobs/selected", act="cancel")
        assert none.status_code == 400 and "no job is selected" in none.text
        odd = await inside.post("/jobs/selected", act="cancel", **{"job:x": "on"})
        assert odd.status_code == 404
        gone = await inside.post("/jobs/selected", act="cancel", **ticked(uuid4()))
        assert gone.status_code == 303 and await sql(ACTS) == []


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
async def test_only_who_may_act_on_jobs_has_boxes(make: Make, sql: Any, role: str):
    [job] = await enqueued(sql, 1)
    async with make(login=LOGIN) as inside:
        assert role in TOKENS and (await enter(inside, role)).status_code == 303
        page = (await inside.http.get("/jobs")).text
        assert ('form="picked"' in page) is (role != "viewer")
        answer = await inside.post("/jobs/selected", "/jobs", act="cancel", **ticked(job))
        assert answer.status_code == (403 if role == "viewer" else 303)
    async with make(unprotected=True, read_only=True) as inside:
        assert 'form="picked"' not in (await inside.http.get("/jobs")).text


# -- batches ---------------------------------------------------------------------------------------
async def test_a_filter_finds_the_members_of_a_batch(
    make: Make, dsn: str, sql: Any, monkeypatch: pytest.MonkeyPatch
):
    async with make() as inside:
        batch = uuid4()
        await enqueued(sql, 2)
        items = json.dumps([{"task": "load", "payload": {"n": n}} for n in range(3)])
        made = await sql(
            "select id from leasework.make_batch(%s, '{\"total\": 3}', %s)", (batch, items)
        )
        members = {row[0] for row in made}
        await enqueued(sql, 2)
        store = await inside.app.store()
        one = min(members)
        await store.discard_many([one], "no", None)
        page = (await inside.http.get("/jobs", params={"q": f"batch:{batch}"})).text
        assert (
            set(map(UUID, re.findall(r'<a class="row" href="/jobs/([0-9a-f-]{36})"', page)))
            == members
        )
        said = re.search(r'id="batch">(.*?)</p>', page, re.S)
        assert (
            said and "Batch of 3 jobs" in said[1] and "2 unfinished, 1 did not complete" in said[1]
        )
        for job in (one, max(members)):  # finished or not, its page leads to the batch
            page = (await inside.http.get(f"/jobs/{job}")).text
            assert f"/jobs?q=batch%3A{batch}" in page
        monkeypatch.setenv("LEASEWORK_DSN", dsn)
        command = ["jobs", "--json", "--where", f"batch:{batch} state:discarded"]
        result = await asyncio.to_thread(CliRunner().invoke, root, command)
        assert result.exit_code == 0, result.output
        assert [UUID(row["id"]) for row in json.loads(result.output)] == [one]
        page = (await inside.http.get("/jobs", params={"q": f"batch:{uuid4()}"})).text
        assert "No matching jobs." in page
        odd = await inside.http.get("/jobs", params={"q": "batch:7"})
        assert odd.status_code == 400 and "takes the whole id of a batch" in odd.text
