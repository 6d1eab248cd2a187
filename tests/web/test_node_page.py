"""The page of a node, and an idle queue that a node works, in this process."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

from tests.pg.conftest import sql
from tests.web.conftest import Make

__all__ = ["sql"]

NODE = """
insert into leasework.node (id, token, lease_seconds, app, release, host, pid, version, queues,
    tasks, info)
values (%s, 1, 1e6, 'shop', '2026-11', 'web-1', 4711, '1.0', '{"mail": 5}', '{send}',
    '{"drains": true, "running": 1, "leads": {"default": 7}, "secret": "hunter2"}') returning id
"""
CLAIMED = """
with seat as (
    insert into leasework.claimed_to (node, queue, level, seat)
    select %s, queue, leasework.level(priority, fresh), seat from leasework.job returning node)
update leasework.job set node = seat.node, attempt = 1, claim_token = 1, claimed_at = now()
from seat
"""


async def test_a_node_has_a_page_with_what_it_runs_and_did(make: Make, sql: Any):
    node = UUID(int=7 << 90)
    await sql(NODE, (node,))
    [[job]] = await sql("select id from leasework.enqueue(%s)", (json.dumps({"task": "send"}),))
    await sql(CLAIMED, (node,))
    [[worker]] = await sql("select worker_id from leasework.nodes")
    for name, who in (("node_started", worker), ("clock_stepped", "another:1:abcdef")):
        await sql(
            "insert into leasework.event (kind, level, worker_id, fields)"
            " values (%s, 'info', %s, '{}')", (name, who)
        )  # fmt: skip
    async with make() as inside:
        assert f'href="/nodes/{node}"' in (await inside.http.get("/nodes")).text
        answer = await inside.http.get(f"/nodes/{node}")
        assert answer.status_code == 200
        for said in (
            worker,
            "shop",
            "2026-11",
            "mail 5",
            "default, term 7",
            str(job),
            "node_started",
        ):
            assert said in answer.text, said
        assert "clock_stepped" not in answer.text and "hunter2" not in answer.text
        assert 'value="drain"' in answer.text and 'value="halt"' in answer.text
        form = {"node": str(node), "act": "halt"}
        assert (await inside.post("/nodes/act", f"/nodes/{node}", **form)).status_code == 303
        assert "stop requested" in (await inside.http.get(f"/nodes/{node}")).text
        for other in (uuid4(), "x"):
            gone = await inside.http.get(f"/nodes/{other}")
            assert gone.status_code == 400 and "this node is gone" in gone.text
    async with make(unprotected=True, read_only=True) as inside:
        assert "<button name" not in (await inside.http.get(f"/nodes/{node}")).text


async def test_an_idle_queue_of_a_live_node_is_listed_and_can_be_paused(make: Make, sql: Any):
    async with make() as inside:
        assert "No queue has jobs or workers." in (await inside.http.get("/queues")).text
        await sql(NODE, (uuid4(),))
        assert 'value="mail"' in (await inside.http.get("/queues")).text
        form = {"name": "mail", "act": "pause", "reason": "maintenance"}
        await inside.post("/queues/act", "/queues", **form)
        page = (await inside.http.get("/queues")).text
        assert "The queue mail is paused" in page and 'value="resume"' in page
        assert await sql("select kind, name from leasework.pause") == [("queue", "mail")]
        await sql("delete from leasework.node")
        assert 'value="resume"' in (await inside.http.get("/queues")).text, "still paused"
        operator = await inside.app.operator("test", "test")
        assert [row["queue"] for row in await operator.queues.all()] == ["mail"]


async def test_large_arguments_and_results_are_folded(make: Make, sql: Any):
    small, large = {"n": 1}, {"text": "x" * 3000}
    rows = await sql(
        "select id from leasework.enqueue(%s)",
        (json.dumps([{"task": "t", "payload": one} for one in (small, large)]),),
    )
    async with make() as inside:
        pages = [(await inside.http.get(f"/jobs/{job}")).text for (job,) in rows]
    assert [page.count("characters</summary><pre>") for page in pages] == [0, 1]
    assert "Show 3,0" in pages[1] and "x" * 3000 in pages[1]
