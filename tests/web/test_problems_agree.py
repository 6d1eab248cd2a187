"""Status, pages and metrics tell the same problems, with real sessions that cause them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from leasework.config import BLOCKED_SECONDS
from tests.support.wait import until_async
from tests.web.conftest import Inside, Make

BURST = """
insert into leasework.job (id, queue, task_name, payload, ready)
select gen_random_uuid(), queue, 'send', '{}', true
from unnest('{mail,bulk}'::text[]) queue, generate_series(1, 12500)
"""
HISTORY = """
insert into leasework.history (at, queue, task_name, completed, run)
select date_trunc('minute', now()) - interval '1 min' * n, 'default', 'send', 100, '{"10": 100}'
from generate_series(20, 60) n
"""


@contextmanager
def locked(dsn: str, table: str) -> Iterator[int]:
    with psycopg.connect(dsn) as holder:
        holder.execute(f"lock table leasework.{table}")  # type: ignore[arg-type]
        yield holder.info.backend_pid


async def told(inside: Inside) -> dict[str, str]:
    """What each source tells, as text."""
    found = (await (await inside.app.inspect()).look())[1]
    return {
        "status": json.dumps([one.as_json() for one in found], default=str),
        "page": (await inside.http.get("/now")).text,
        "metric": (await inside.http.get("/metrics")).text,
    }


@pytest.mark.parametrize("table", ["job", "job_done", "node", "history"])
async def test_a_locked_table_is_told_everywhere_with_the_session_that_holds_it(
    make: Make, table: str
):
    async with make() as inside:
        with locked(inside.app.settings.dsn, table) as pid:

            async def named() -> bool:
                says = await told(inside)
                sentence = f"The session {pid} "
                metric = f'kind="lock_wait",subject="session:{pid}"}} 1.0'
                return all(
                    word in text
                    for word, text in zip((sentence, sentence, metric), says.values(), strict=True)
                )

            await until_async(named, BLOCKED_SECONDS * 12, "the session to be named")
            page = await inside.http.get("/database")
            assert page.status_code == 200 and str(pid) in page.text
            assert "a session has locked one" in page.text
            found = (await (await inside.app.inspect()).look())[1]
            assert found[0].kind == "lock_wait" and f"table {table}" in found[0].sentence
            assert [one.kind for one in found if not one.info] == ["lock_wait"], "one card"


async def test_tile_table_command_and_metric_count_the_same_jobs(make: Make):
    async with make() as inside:
        with psycopg.connect(inside.app.settings.dsn, autocommit=True) as connection:
            connection.execute(BURST)
        page = (await inside.http.get("/now")).text
        tile = re.search(r"<dt>Available jobs</dt><dd>([\d,+]+)</dd>", page)
        assert tile and tile[1] == "25,000"
        cells = re.findall(r'data-label="Available">([\d,+]+)<', page)
        assert cells == ["12,500", "12,500"]
        operator = await inside.app.operator("test", "test")
        assert [row["available"] for row in await operator.queues.all()] == [12_500, 12_500]
        text = (await inside.http.get("/metrics")).text
        ready = {
            sample.labels["queue"]: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "leasework_queue_ready"
        }
        assert ready == {"mail": 12_500.0, "bulk": 12_500.0}


async def test_a_task_that_is_far_slower_than_usual_is_told(make: Make):
    async with make() as inside:
        with psycopg.connect(inside.app.settings.dsn, autocommit=True) as connection:
            connection.execute(HISTORY)
            connection.execute(
                "insert into leasework.history (at, queue, task_name, completed, run)"
                " select date_trunc('minute', now()), 'default', 'send', 30, '{\"60\": 30}'"
            )
        found = (await (await inside.app.inspect()).look())[1]
        assert "task_slow" in [one.kind for one in found], found


async def test_a_task_that_completed_nothing_in_the_last_day_has_no_usual_time(make: Make):
    """A long run of such a task must not keep status and the pages from their answer."""
    async with make() as inside:
        with psycopg.connect(inside.app.settings.dsn, autocommit=True) as connection:
            connection.execute(HISTORY.replace("now()", "now() - interval '2 days'"))
        reports = await inside.app.reports()
        assert await reports.usual(["send"], None) == []


async def test_a_silence_holds_everywhere_until_it_is_ended(make: Make):
    async with make() as inside:
        operator = await inside.app.operator("ann", "cli")
        await operator.silence("no_live_node", "", 3600, "a planned stop")
        found = (await operator.inspector.look())[1]
        assert found[0].level == "silenced" and "ann" in found[0].silence
        await operator.silence("no_live_node", "", 0, "")
        found = (await operator.inspector.look())[1]
        assert found[0].level == "wrong"
        acts = [event.fields for event in await operator.inspector.events("person_acted")]
        assert [(act["who"], act["on"]) for act in acts] == [("ann", "no_live_node")] * 2


NODE = """
insert into leasework.node (id, token, lease_seconds, app, release, host, pid, version, queues,
    tasks, info)
values (gen_random_uuid(), 1, 1e6, 'default', 'r', 'host', 1, '0', '{"default": 1}', '{send}',
    '{"long": [{"task": "send", "queue": "default", "jobs": 1, "seconds": 90, "id": "1"}]}')
"""


async def test_a_long_job_of_a_task_that_never_completed_is_no_error(make: Make):
    async with make() as inside:
        with psycopg.connect(inside.app.settings.dsn, autocommit=True) as connection:
            connection.execute(NODE)
            connection.execute(
                "insert into leasework.history (at, queue, task_name, failed)"
                " values (date_trunc('minute', now()), 'default', 'send', 3)"
            )
        facts, found = await (await inside.app.inspect()).look()
        assert facts and facts.pace == [] and "job_hangs" not in [one.kind for one in found]
        assert (await inside.http.get("/now")).status_code == 200
