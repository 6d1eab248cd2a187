"""The pages of queues and limits, and the same acts by the command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from leasework import App
from leasework.cli.root import root
from tests.pg.conftest import sql
from tests.support.wait import until_async
from tests.web.conftest import Inside, Make

__all__ = ["sql"]

LANE = {"task": "t", "limits": [{"limit": "customer", "key": "7"}]}


async def fill(app: App, sql: Any) -> None:
    """A limit, one job that waits for it, and one that waits for nothing."""
    limits = [{"name": "customer", "concurrency": 2, "rate": None, "burst": None}]
    await (await app.store()).sync_limits("shop", limits, [], [], False, None)
    await sql("select leasework.enqueue(%s)", (json.dumps([LANE, {"task": "t"}]),))


async def acts(sql: Any) -> list[Any]:
    rows = await sql(
        "select fields ->> 'act', fields ->> 'on', fields ->> 'reason' from leasework.event"
        " where kind = 'person_acted' order by id"
    )
    return [tuple(row) for row in rows]


async def text(inside: Inside, path: str) -> str:
    page = await inside.http.get(path)
    assert page.status_code == 200, page.text
    return page.text


async def test_a_queue_is_paused_and_resumed_on_its_page(make: Make, sql: Any) -> None:
    async with make() as inside:
        await fill(inside.app, sql)
        assert 'data-label="Waiting for limits">1<' in await text(inside, "/queues")
        form = {"name": "default", "act": "pause", "reason": "maintenance"}
        assert (await inside.post("/queues/act", "/queues", **form)).status_code == 303
        assert await sql("select kind, name from leasework.pause") == [("queue", "default")]
        assert "Resume" in await text(inside, "/queues")

        async def told() -> bool:
            return "has been paused for" in await text(inside, "/now")

        await until_async(told, what="the overview names the pause")
        await inside.post("/queues/act", "/queues", name="default", act="resume")
        assert await sql("select 1 from leasework.pause") == []
        assert await acts(sql) == [
            ("pause", "queue default", "maintenance"),
            ("resume", "queue default", None),
        ]
        wrong = await inside.post("/queues/act", "/queues", name="default", act="paus")
        assert wrong.status_code == 400
        assert "pause" in wrong.text


async def test_a_limit_and_a_key_are_changed_on_their_page(make: Make, sql: Any) -> None:
    async with make() as inside:
        await fill(inside.app, sql)
        await inside.post("/limits/act", "/limits", name="customer", act="set", concurrency="5")
        form = {"name": "customer", "key": "7", "act": "set", "concurrency": "1"}
        await inside.post("/limits/act", "/limits", **form)
        page = await text(inside, "/limits?name=customer")
        assert "the code says 2" in page
        assert ">1 key changed<" in page
        assert "<td>7" in page
        rows = await sql("select set_concurrency from leasework.limits")
        assert rows + await sql("select set_concurrency from leasework.limit_key") == [(5,), (1,)]
        await inside.post("/limits/act", "/limits", name="customer", act="reset")
        assert await sql("select set_concurrency, set_at from leasework.limits") == [(None, None)]
        for field, value in (("concurrency", "many"), ("rate", "0")):
            bad = {"name": "customer", "act": "set", field: value}
            assert (await inside.post("/limits/act", "/limits", **bad)).status_code == 400


async def test_a_dashboard_that_only_reads_refuses_both(make: Make, sql: Any) -> None:
    async with make(unprotected=True, read_only=True) as inside:
        await fill(inside.app, sql)
        for page in ("queues", "limits"):
            assert f"{page}/act" not in await text(inside, f"/{page}")
            form = {"name": "x", "act": "pause", "form_token": "x"}
            refused = await inside.post(f"/{page}/act", f"/{page}", **form)
            assert refused.status_code == 403


async def test_the_page_of_a_job_names_its_limit(make: Make, sql: Any) -> None:
    async with make() as inside:
        await fill(inside.app, sql)
        [[job]] = await sql("select id from leasework.job where lane is not null")
        assert "It has room in the limit &#39;customer&#39;, key &#39;7&#39;" in await text(
            inside, f"/jobs/{job}"
        )
        assert "available" in await text(inside, f"/jobs/{job}")


@pytest.fixture
def run(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("LEASEWORK_DSN", dsn)
    return lambda *arguments: CliRunner().invoke(root, list(arguments))


async def test_the_commands_do_the_same(make: Make, sql: Any, run: Callable[..., Result]) -> None:
    async def said(*arguments: str, exits: int = 0) -> str:
        done = await asyncio.to_thread(run, *arguments)
        assert done.exit_code == exits, done.output
        return done.output

    async with make() as inside:
        await fill(inside.app, sql)
        [[job]] = await sql("select id from leasework.job where lane is not null")
        shown = await said("jobs", "show", str(job))
        assert "- It has room in the limit 'customer', key '7'." in shown
        assert "is paused" in await said("queues", "pause", "default", "--reason", "maintenance")
        assert "already paused" in await said("queues", "pause", "default")
        assert "is paused" in await said("queues", "pause", "--task", "t")
        [row] = json.loads(await said("queues", "--json"))
        assert (row["queue"], row["paused"], row["available"], row["limited"]) == (
            "default",
            True,
            1,
            1,
        )
        assert "has been paused" in await said("status", exits=1)  # and nobody works here
        await said("queues", "resume", "default")
        await said("queues", "resume", "--task", "t")
        await said("queues", "weight", "default", "gold", "3")
        await said("limits", "set", "customer", "--key", "7", "--concurrency", "0")
        await said("limits", "set", "customer", "--rate", "2", "--per", "900")
        assert "8/h*" in await said("limits")
        assert ">8/h<" in await text(inside, "/limits")
        await said("limits", "set", "customer", "--rate", "5", "--per", "1", "--burst", "1")
        await said("limits", "pause", "customer")
        [limit] = json.loads(await said("limits", "--json"))
        assert (limit["set_rate"], limit["set_burst"], limit["paused"]) == (5, 1, True)
        assert "5/s*" in await said("limits")
        [key] = json.loads(await said("limits", "keys", "customer", "--json"))
        assert (key["key"], key["set_concurrency"], key["waiting"]) == ("7", 0, 1)
        await said("limits", "resume", "customer")
        await said("limits", "reset", "customer")
        await said("limits", "reset", "customer", "--key", "7")
        assert "Did you mean" in await said("limits", "pause", "custmer", exits=1)
        for act in (["pause"], ["resume"], ["reset"], ["set", "--concurrency", "1"], ["keys"]):
            assert "Known: customer" in await said("limits", *act, "vendor", exits=1)
        for act in ("pause", "resume"):
            assert "Did you mean 'default'" in await said("queues", act, "defalt", exits=1)
            unknown = await said("queues", act, "--task", "nobody", exits=1)
            assert "no job, worker or definition names this task" in unknown
        assert "Did you mean" in await said("queues", "weight", "defalt", "gold", "3", exits=1)
        assert await sql("select 1 from leasework.pause") == []
        assert "Give --concurrency" in await said("limits", "set", "customer", exits=2)
    assert ("set rate 5 per 1 s, burst 1", "limit customer", None) in await acts(sql)
    assert ("set the weight to 3", "tenant gold of queue default", None) in await acts(sql)


async def test_a_schedule_whose_jobs_have_limits_is_not_made_or_given_arguments_here(
    make: Make, sql: Any
) -> None:
    async with make() as inside:
        app = inside.app
        limit = app.limit("customer", concurrency=1, key="who")

        @app.task(limits=[limit], name="limited")
        async def limited(who: str = "a") -> None: ...

        async with app.node() as node:
            await until_async(node.leads)
            await app.schedules.put("nightly", "limited", cron="0 7 * * *", arguments={"who": "a"})
            [[job, release]] = await sql("select job, release from leasework.schedule")
            assert job["limits"] == [{"limit": "customer", "key": "a"}]
            shown = {"app": app.settings.name, "cron": "0 8 * * *", "every": "", "at": ""}
            shown |= {"timezone": "UTC", "missed": "latest"}

            async def put(**form: str) -> str:
                answer = await inside.post("/schedules/put", "/schedules", **{**shown, **form})
                return answer.text

            said = await put(name="nightly", act="edit", release=release, arguments='{"who": "b"}')
            assert "only code can change" in said
            said = await put(name="other", act="new", task="limited", arguments="{}")
            assert "only code can name them" in said
