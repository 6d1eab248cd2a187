"""The dashboard's forms that make schedules and edit those that were put."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import httpx
import pytest

from leasework.model.masking import MASK
from leasework.store.rows import StoredSchedule
from tests.support.wait import until_async
from tests.web.conftest import Inside, Make
from tests.web.test_attacks import sql

SECRET = {"user": "ada", "password": "hunter2"}
EMPTY = {"cron": "", "timezone": "UTC", "every": "", "at": "", "missed": "latest"}


@asynccontextmanager
async def site(make: Make, **put: Any) -> AsyncIterator[Inside]:
    """The dashboard of an application that has put the schedule ``mine``."""
    async with make(unprotected=True) as inside:

        @inside.app.task(name="report", queue="reports")
        async def report(customer: int = 0, login: dict[str, str] | None = None) -> None: ...

        @inside.app.task(name="second", version=2)
        async def second() -> None: ...

        given = {"cron": "0 7 * * *", "arguments": {"customer": 1, "login": SECRET}, **put}
        await inside.app.schedules.put("mine", "report", **given)
        yield inside


async def listed(inside: Inside) -> str:
    return unescape((await inside.http.get("/schedules")).text)


async def mine(inside: Inside) -> StoredSchedule:
    return await inside.app.schedules.get("mine")


async def edit(inside: Inside, **form: str) -> httpx.Response:
    """Send the form of ``mine``, as the page shows it, with other values."""
    page = await listed(inside)
    release = re.search(r'name="release" value="(put [^"]+)"', page)
    arguments = re.search(r"</summary>.*<textarea[^>]*>([^<]*)<", page, re.DOTALL)
    assert release and arguments
    given = {"name": "mine", "app": "default", "release": release[1], "act": "edit"}
    shown = {**EMPTY, "cron": "0 7 * * *", "arguments": arguments[1]}
    return await inside.post("/schedules/put", "/schedules", **{**given, **shown, **form})


async def acts(inside: Inside) -> list[Any]:
    events = await (await inside.app.inspect()).events("person_acted")
    return [{**e.fields} for e in reversed(events)]


async def test_an_edit_changes_its_fields_and_keeps_everything_else(make: Make):
    options = {"tags": ["a"], "max_attempts": 2, "timeout": 60, "priority": 5}
    async with site(make, grace_seconds=60, **options) as inside:
        before = await mine(inside)
        page = await listed(inside)
        assert 'value="0 7 * * *"' in page and '"customer": 1' in page and "hunter2" not in page
        assert "at run time" in page and "Its past moments and its jobs stay" in page
        new = json.dumps({"customer": 42, "login": {"user": "ada", "password": MASK}})
        answer = await edit(
            inside, cron="30 8 * * *", timezone="Asia/Seoul", missed="all", arguments=new
        )
        assert (answer.status_code, answer.headers["location"]) == (303, "/schedules"), answer.text
        assert "mine of default is stored." in await listed(inside)
        after = await mine(inside)
        seoul = {"kind": "cron", "expression": "30 8 * * *", "timezone": "Asia/Seoul"}
        assert (after.spec, after.missed) == (seoul, "all")
        assert after.described == "At 08:30 every day (Asia/Seoul)"
        assert after.next_at and (after.next_at.hour, after.next_at.minute) == (23, 30)
        payload = {"customer": 42, "login": SECRET}
        assert after.job == {**before.job, "payload": payload}
        assert (after.grace_seconds, after.task_name) == (60.0, "report")
        [act] = await acts(inside)
        said = ("local", "web", "put", "schedule mine of default")
        assert (act["who"], act["via"], act["act"], act["on"]) == said


async def test_an_interval_keeps_its_anchor_and_a_default_grace_follows_the_moments(make: Make):
    anchor = datetime(2026, 1, 1, 0, 0, 20, tzinfo=UTC)
    async with site(make, cron=None, every=1.1, anchor=anchor) as inside:
        assert 'name="every" value="1.1"' in await listed(inside)
        assert (await edit(inside, cron="", every="60")).status_code == 303
        found = await mine(inside)
        assert found.spec == {"kind": "every", "seconds": 60.0, "anchor": anchor.isoformat()}
        assert found.grace_seconds == 5.0
        assert (await edit(inside, cron="", every="60", arguments='{"customer": true}')).is_redirect
        assert (await mine(inside)).job["payload"]["customer"] is True, "not 1, which equals it"
        assert (await edit(inside, cron="", at="2030-01-31T07:00:00+09:00")).status_code == 303
        assert (await mine(inside)).spec == {"kind": "once", "at": "2030-01-30T22:00:00+00:00"}


async def test_moments_that_were_due_before_an_edit_stay_due_as_with_put(make: Make, dsn: str):
    async with site(make) as inside:
        await inside.app.schedules.put("other", "report", cron="0 7 * * *")
        due = "update leasework.schedule set next_at = now() - interval '1 hour' returning next_at"
        [(due_at,), _] = await sql(dsn, due)
        await inside.app.schedules.put("other", "report", cron="0 9 * * *")
        await edit(inside, cron="0 9 * * *")
        rows = await sql(dsn, "select next_at, former from leasework.schedule order by name")
        for next_at, former in rows:
            [stretch] = former["stretches"]
            assert (next_at, stretch["spec"]["expression"]) == (due_at, "0 7 * * *")
            assert datetime.fromisoformat(stretch["first"]) == due_at
            assert datetime.fromisoformat(former["first"]) > due_at + timedelta(hours=1)


WRONG = [
    ({"cron": "61 7 * * *"}, "the cron expression cannot be read"),
    ({"cron": "0 0 30 2 *"}, "bad day-of-month"),
    ({"cron": ""}, "give exactly one of cron, every and at"),
    ({"every": "60"}, "give exactly one of cron, every and at"),
    ({"timezone": "Asia/Soul"}, "the time zone is unknown"),
    ({"cron": "", "every": "soon"}, "not a number of seconds, or a time with a time zone"),
    ({"cron": "", "every": "nan"}, "an interval is a number of seconds"),
    ({"cron": "", "every": "0"}, "an interval is a number of seconds from 1"),
    ({"cron": "", "at": "tomorrow"}, "or a time with a time zone"),
    ({"cron": "", "at": "2030-01-31T07:00:00"}, "or a time with a time zone"),
    ({"missed": "some"}, "unknown policy for missed="),
    ({"arguments": '{"customer": 42'}, "the arguments are not a JSON object"),
    ({"arguments": "[1]"}, "the arguments are not a JSON object"),
    ({"arguments": "[" * 10_000}, "the arguments are not a JSON object"),
    ({"arguments": '{"customer": NaN}'}, "not JSON"),
    ({"arguments": '{"customer": "\\u0000"}'}, "NUL"),
    ({"arguments": json.dumps({"a": "x" * 600})}, "over the limit of 500"),
    ({"arguments": json.dumps({"login": {"password": MASK}})}, "stands for a secret"),
    ({"release": "put 1"}, "has changed since you loaded the page"),
    ({"name": "none"}, "has changed since you loaded the page"),
    ({"name": ""}, "a name must be text"),
    ({"name": "a\x00"}, "no NUL"),
    ({"app": "other\x00"}, "no NUL"),
    ({"act": "new"}, "a schedule named 'mine' exists"),
    ({"act": "new", "name": "new"}, "no live node of the application 'default' knows this task"),
]


async def test_a_wrong_form_is_shown_again_and_changes_nothing(make: Make, dsn: str):
    async with site(make) as inside:
        await inside.app.close()
        inside.app.configure(payload_limit=500)
        rows = await sql(dsn, "select * from leasework.schedule")
        for given, why in WRONG:
            answer = await edit(inside, **given)
            page = unescape(answer.text)
            assert answer.status_code == 400 and why[1:] in page, (given, page)
            for field in given.keys() & {"cron", "timezone", "every", "at"}:
                assert f'name="{field}" value="{given[field]}"' in page, "it is shown again"
            assert f">{given.get('arguments', '')}</textarea>" in page or "arguments" not in given
        assert await sql(dsn, "select * from leasework.schedule") == rows
        assert await acts(inside) == []


@pytest.fixture
async def live(make: Make) -> AsyncIterator[Inside]:
    """The site with a node, whose code has the schedule ``hourly``."""
    async with site(make) as inside:

        @inside.app.every(seconds=3600, name="hourly")
        @inside.app.task(name="other")
        async def other() -> None: ...

        async with inside.app.node():

            async def synced() -> bool:
                return len(await inside.app.schedules.list()) == 2

            await until_async(synced, 60, "the code's schedule is stored")
            yield inside


async def make_one(inside: Inside, **form: str) -> httpx.Response:
    new = {"name": "new", "app": "default", "task": "report", "queue": "reports", "act": "new"}
    return await inside.post("/schedules/put", "/schedules", **{**EMPTY, **new, **form})


async def test_a_new_schedule_has_a_task_that_a_live_node_knows(live: Inside):
    page = await listed(live)
    for name in ("report", "second (version 2)", "reports", "default"):
        assert re.search(rf"<option[^>]*>{re.escape(name)}</option>", page), name
    answer = await make_one(live, every="90", arguments='{"customer": 7}', missed="skip")
    assert answer.status_code == 303, answer.text
    found = await live.app.schedules.get("new")
    job = {"task": "report", "queue": "reports", "payload": {"customer": 7}}
    assert (found.job, found.missed, found.grace_seconds) == (job, "skip", 5.0)
    assert (found.described, found.in_code) == ("every 90 seconds", False)
    answer = await make_one(live, name="newer", task="second (version 2)", cron="@daily")
    assert answer.status_code == 303, answer.text
    job = {"task": "second", "version": 2, "queue": "reports", "payload": {}}
    assert (await live.app.schedules.get("newer")).job == job
    assert [act["on"] for act in await acts(live)] == [
        "schedule new of default",
        "schedule newer of default",
    ]
    answer = await make_one(live, name="third", task="reporter", cron="@daily")
    assert answer.status_code == 400 and "Did you mean 'report'?" in unescape(answer.text)


async def test_a_schedule_of_the_code_is_only_shown(live: Inside):
    page = await listed(live)
    assert "in the code: change it there" in page and page.count("<summary>Edit</summary>") == 1
    before = await live.app.schedules.get("hourly")
    assert (await make_one(live, name="hourly", cron="@daily")).status_code == 400
    forged = await edit(live, name="hourly", release=before.release, arguments="{}")
    assert forged.status_code == 400
    assert "the code defines a schedule named 'hourly'"[1:] in unescape(forged.text)
    assert (await live.app.schedules.get("hourly")).spec == before.spec
    assert await acts(live) == []


async def test_one_that_was_put_is_removed_for_good(make: Make):
    async with site(make) as inside:
        form = {"name": "mine", "app": "default", "act": "remove"}
        answer = await inside.post("/schedules/act", "/schedules", **form)
        assert answer.status_code == 303
        assert await inside.app.schedules.list() == []
        assert [act["act"] for act in await acts(inside)] == ["remove"]


async def test_a_reader_gets_no_forms(make: Make):
    async with site(make), make(unprotected=True, read_only=True) as reader:
        page = (await reader.http.get("/schedules")).text
        assert "mine" in page and "<summary>" not in page and "schedules/put" not in page
