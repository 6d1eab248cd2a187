"""Thousands of schedules: the page, the command and the calls show them piece by piece."""

from __future__ import annotations

import re
from html import unescape
from itertools import pairwise
from typing import Any

import httpx
import psycopg
import pytest

from leasework.pg.sql import statement
from leasework.tuning import Tuning
from tests.support.procs import Processes
from tests.web.conftest import Inside, Make

MANY = 10_000
PUT = """
insert into leasework.schedule (app, name, spec, described, task_name, job, missed, grace_seconds,
                                release, in_code, next_at)
select case when n %% 2 = 0 then 'shop' else 'bank' end, 'report-' || lpad(n::text, 5, '0'),
       '{"kind": "cron", "expression": "0 7 * * *", "timezone": "UTC"}', 'At 07:00 every day', 'report',
       jsonb_build_object('task', 'report', 'payload', jsonb_build_object('customer', n)), 'latest', 5, 'put',
       false, now() + interval '1 hour'
from generate_series(1, %s) n
"""  # noqa: E501
TICKS = """
insert into leasework.tick (app, schedule, fire_at, state)
select app, name, date_trunc('day', now()) - n * interval '1 day', 'missed'
from leasework.schedule, generate_series(1, 3) n
"""


async def fill(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(PUT, [MANY])
        await connection.execute(TICKS)
        await connection.execute("analyze leasework.schedule, leasework.tick")


def names(page: httpx.Response) -> list[str]:
    return re.findall(r'(?:<h2>|<a class="row" [^>]*>)(report-\d+)<', page.text)


def link(page: httpx.Response, words: str) -> str | None:
    found = re.search(rf'href="([^"]+)">{words}</a>', page.text)
    return unescape(found[1]) if found else None


async def opened(inside: Inside, path: str) -> httpx.Response:
    page = await inside.http.get(path)
    assert page.status_code == 200, page.text
    return page


async def test_the_page_shows_ten_thousand_schedules_piece_by_piece(make: Make, dsn: str):
    async with make() as inside:
        await fill(dsn)
        page, seen = await opened(inside, "/schedules"), []
        most = Tuning.shown_schedules
        for _ in range(3):
            assert len(names(page)) == most
            assert page.text.count(": missed") >= 3 * most, "each has its last ticks"
            seen += names(page)
            onward = link(page, "Next")
            assert onward
            page = await opened(inside, onward)
        assert all(one < other for one, other in pairwise(seen))
        first = link(page, "First page")
        assert first and names(await opened(inside, first)) == seen[: Tuning.shown_schedules]
        # the last page: the even ones come last, because "shop" is behind "bank"
        page = await opened(inside, "/schedules?after_app=shop&after=report-09990")
        assert names(page) == [f"report-{n:05}" for n in range(9992, MANY + 1, 2)]
        assert link(page, "Next") is None


async def test_a_search_finds_one_of_them_and_an_action_returns_to_it(make: Make, dsn: str):
    async with make(unprotected=True) as inside:
        await fill(dsn)
        here = "/schedules?q=report-0424"
        page = await opened(inside, here)
        assert names(page) == [f"report-0424{n}" for n in (1, 3, 5, 7, 9, 0, 2, 4, 6, 8)]
        assert link(page, "Next") is None and "customer&#34;: 4241" not in page.text
        cards = await opened(inside, f"{here}&view=cards")
        assert names(cards) == names(page) and "customer&#34;: 4241" in cards.text
        answer = await inside.post(
            "/schedules/act?q=report-0424", here, name="report-04242", app="shop", act="pause"
        )
        assert answer.headers["location"] == here
        page = await opened(inside, here)
        assert "report-04242 of shop is paused." in page.text
        assert 'action="/schedules/act?q=report-0424"' in page.text
        assert "No matching schedules" in (await inside.http.get("/schedules?q=nothing")).text


async def test_the_calls_and_the_command_page_too(make: Make, dsn: str, procs: Processes):
    async with make() as inside:
        inside.app.configure(name="shop")
        await fill(dsn)
        page = await inside.app.schedules.list(prefix="report-00", limit=5)
        assert [row.name for row in page] == [f"report-{n:05}" for n in range(2, 11, 2)]
        page = await inside.app.schedules.list(after=page[-1].name, limit=2)
        assert [row.name for row in page] == ["report-00012", "report-00014"]
        assert page[0].job["payload"] == {"customer": 12}
        assert await (await inside.app.operator("ann", "web")).pause("report-10000") == "shop"

    def listed(*options: str) -> tuple[list[str], str]:
        command = procs.start("-m", "leasework", "schedules", *options, env={"LEASEWORK_DSN": dsn})
        assert command.wait(60) == 0
        return re.findall(r"report-\d+", command.output), command.output

    found, said = listed("--app", "shop", "--name", "report-001", "--limit", "3")
    assert found == ["report-00100", "report-00102", "report-00104"]
    assert "Showing only the first 3 schedules. There may be more:" in said
    found, said = listed("--name", "report-0010")
    assert len(found) == 10 and "Only" not in said
    found, said = listed()
    assert len(found) == 1000 and "only the first 1,000 schedules" in said


@pytest.mark.parametrize("app", [None, "shop"])
async def test_a_page_reads_no_more_schedules_than_it_shows(make: Make, dsn: str, app: str | None):
    async with make():
        await fill(dsn)
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            given: dict[str, Any] = {
                "app": app, "name": None, "prefix": "", "after": "report-05000",
                "after_app": "shop", "longest": 8192, "limit": 51,
            }  # fmt: skip
            cursor = await connection.execute(statement("schedule/list", "leasework"), given)
            assert len(await cursor.fetchall()) == 51
            cursor = await connection.execute(
                "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables"
                " where relid = any (array['leasework.schedule'::regclass, 'leasework.tick'])"
            )
            assert all(0 < read <= 60 for (read,) in await cursor.fetchall())
