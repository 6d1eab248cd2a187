"""The pages of a queue and of a task over time."""

from __future__ import annotations

import re

import psycopg

from tests.web.conftest import Make

ROWS = """
insert into leasework.history (at, queue, task_name, completed, discarded, failed, wait, run)
select date_trunc('minute', now()) - interval '1 min' * n, queue, task, 10, 1, 2,
       '{"0": 11}', '{"30": 10, "40": 1}'
from generate_series(1, 30) n,
     (values ('mail', 'send'), ('mail', 'sort'), ('slow', 'send')) t (queue, task)
"""


def figure(page: str, heading: str) -> str:
    found = re.search(rf"<dt>{heading}</dt><dd[^>]*>([^<]*)</dd>", page)
    assert found, page
    return found[1]


async def test_a_queue_and_a_task_add_up_their_own_minutes(make: Make):
    async with make() as inside:
        with psycopg.connect(inside.app.settings.dsn, autocommit=True) as connection:
            connection.execute(ROWS)
        for query, finished in (("queue=mail", "660"), ("task=send", "660"), ("queue=slow", "330")):
            for span in ("1h", "6h", "24h", "7d", "14d", "nonsense"):
                page = (await inside.http.get(f"/history?{query}&span={span}")).text
                assert figure(page, "Finished jobs") == finished, (query, span)
        page = (await inside.http.get("/history?queue=slow&span=1h")).text
        assert figure(page, "Failed attempts") == "60"
        assert figure(page, "Run time, p95") == "1.6 s"
        assert page.count("<svg") == 4 and "median" in page, "three charts beside the brand"
        assert len(re.findall(r'class="far"', page)) >= 30, "each minute has a p95"


async def test_a_history_of_nothing_is_refused_with_words(make: Make):
    async with make() as inside:
        page = await inside.http.get("/history")
        assert page.status_code == 400 and "name a queue or a task" in page.text
        empty = (await inside.http.get("/history?queue=<b>")).text
        assert figure(empty, "Finished jobs") == "0" and "<b>" not in empty.replace("&lt;b&gt;", "")


async def test_each_queue_and_task_leads_to_its_history(make: Make):
    async with make() as inside:
        with psycopg.connect(inside.app.settings.dsn, autocommit=True) as connection:
            connection.execute(ROWS)
        page = (await inside.http.get("/now")).text
        assert "history?queue=mail" in page and "history?task=send" in page
