"""``leasework mcp`` as an agent's client sees it, over the real protocol."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from leasework import App
from leasework.cli.agents import tools
from leasework.testing import drain


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    answer = await client.call_tool(tool, arguments)
    text = answer.content[0].text
    assert not answer.is_error, text
    return json.loads(text)


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error, answer
    return str(answer.content[0].text)


async def broken(token: str) -> None:
    raise ValueError(f"no answer from {token}")


@pytest.fixture
async def failed(app: App) -> Any:
    task = app.task(name="broken", max_attempts=1)(broken)
    job = await task.enqueue(token="abc")
    await drain(app)
    return job


async def test_an_agent_reads_and_cannot_act(app: App, failed: Any):
    async with Client(tools(app, acts=False)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"status", "jobs", "job", "failures", "schedules"}
        told = await call(client, "status")
        assert "no_live_node" in [problem["kind"] for problem in told["problems"]]
        found = await call(client, "jobs", where="state:discarded")
        assert [job["id"] for job in found["jobs"]] == [str(failed.id)] and not found["more"]
        assert found["jobs"][0]["payload"] == {"token": "••••••"}
        one = await call(client, "job", job=str(failed.id))
        assert one["attempts"][0]["error"].startswith("ValueError: no answer")
        [group] = await call(client, "failures")
        assert group["attempts"] == 1 and group["pattern"].startswith("ValueError")
        assert await call(client, "schedules") == []
        assert "colour" in await refused(client, "jobs", where="colour:red")
        masked = await refused(client, "jobs", where="args.token:a*")
        assert "is masked" in masked, "it would tell the secret a letter at a time"


async def test_an_act_is_planned_first_done_once_and_recorded(app: App, failed: Any):
    async with Client(tools(app, acts=True)) as client:
        where = "state:discarded task:broken"
        assert "no such plan" in await refused(client, "act", plan="1")
        assert "reason" in await refused(client, "plan", act="retry", target=where, reason=" ")
        for act in ("drop", "reprioritize"):
            assert "retry" in await refused(client, "plan", act=act, target=where, reason="x")
        long = await refused(client, "plan", act="retry", target=where, reason="x" * 201)
        assert "at most 200 characters" in long, "before it is done, and not when it is recorded"
        guess = f"{where} args.token:a*"
        assert "masked" in await refused(client, "plan", act="retry", target=guess, reason="x")
        plan = await call(client, "plan", act="retry", target=where, reason="the vendor is back")
        assert plan["does"] == f"retry 1 jobs that match {where}"
        assert (await app.get(failed.id)).state == "discarded", "a plan changes nothing"
        done = await call(client, "act", plan=plan["plan"])
        assert done == {"done": "retry", "jobs": 1, "skipped": 0}
        assert (await app.get(failed.id)).state == "available"
        assert "no such plan" in await refused(client, "act", plan=plan["plan"])
        plan = await call(client, "plan", act="pause", target="default", reason="maintenance")
        assert await call(client, "act", plan=plan["plan"]) == {"done": "pause", "changed": True}
    events = await (await app.inspect()).events("person_acted")
    assert [[event.fields[name] for name in ("act", "via", "reason")] for event in events] == [
        ["pause", "mcp", "maintenance"], ["retry", "mcp", "the vendor is back"],
    ]  # fmt: skip


async def test_the_command_serves_on_standard_input_and_output(app: App, failed: Any):
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "leasework", "mcp", "--dsn", app.settings.dsn],
    )
    async with Client(command) as client:
        assert len((await client.list_tools()).tools) == 5
        assert (await call(client, "jobs"))["jobs"][0]["id"] == str(failed.id)
