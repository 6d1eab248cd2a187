"""The core of leasework on what managed services leave of a server, all at once: an ordinary role
with settings of its own, functions that refuse, a pooler, a serializable database."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from leasework import App
from leasework.web import dashboard, site
from tests.e2e.fault_apps.scene import RECOVER_WITHIN, Scene, batch, together
from tests.support.managed import managed
from tests.support.wait import until, until_async

__all__ = ["batch"]
pytestmark = pytest.mark.timeout(300)
PAGES = tuple(path for path, *_ in site.PAGES)


def move(scene: Scene) -> Scene:
    """The same scene on a managed service; the schema is applied there by the ordinary role."""
    scene.use(scene.stack.enter_context(managed(scene.bare_database())))
    return scene


def cli(scene: Scene, *arguments: str, exits: int = 0) -> Any:
    process = scene.procs.start(
        "-m", "leasework", *arguments, "--json", name=f"cli{len(scene.procs.all)}",
        env={"LEASEWORK_DSN": scene.dsn, "LEASEWORK_RECOVER_WITHIN": str(RECOVER_WITHIN)},
    )  # fmt: skip
    assert process.wait(60) == exits, process.output
    return json.loads(process.output[process.output.index("{") :])


@together
def test_jobs_schedules_and_failures_go_on_over_the_kill_of_a_leader(scene: Scene) -> None:
    move(scene)
    workers = [scene.worker(name, ticks=1) for name in ("one", "two")]
    leader = scene.wait_for_leader(*workers)
    jobs = scene.enqueue("quick", 200)
    [failing] = scene.enqueue("fail", options={"max_attempts": 2})
    until(lambda: scene.states([failing]) == {"discarded": 1}, 60, "the failure to be final")
    assert [run["attempt"] for run in scene.history("start", job=failing)] == [1, 2]
    scene.wait_history("tick", count=2)
    held = scene.enqueue("nap", 60, seconds=3.0)
    scene.wait_history("start", task="nap", pid=leader.pid, timeout=60)
    term = scene.one("select max(term) from leasework.leaders")
    leader.kill()
    scene.wait_done(jobs + held, 120)
    survivor = next(worker for worker in workers if worker is not leader)
    assert scene.wait_for_leader(survivor) is survivor
    assert scene.one("select max(term) from leasework.leaders") > term
    scene.wait_history("tick", count=len(scene.history("tick")) + 2, timeout=60)
    assert scene.check_ticks() >= 4
    scene.check_overlaps()
    [[lowest]] = scene.sql("select min(claim_token) from leasework.jobs where claim_token < 1")
    assert lowest is None, "tokens begin with 1 where no timeline is told"


@together
def test_status_and_doctor_find_no_problem_and_each_page_opens(scene: Scene) -> None:
    move(scene)
    worker = scene.worker("one", ticks=1)
    scene.wait_for_leader(worker)
    scene.wait_done(scene.enqueue("quick", 5), 60)

    status = cli(scene, "status")
    assert status["ok"] and status["problems"] == [] and status["notes"] == []
    told = cli(scene, "doctor")
    assert told["ok"] and {n["kind"] for n in told["notes"]} == {"pooler", "tokens"}
    asyncio.run(_open_pages(scene))


async def _open_pages(scene: Scene) -> None:
    app = App(scene.dsn)
    transport = httpx.ASGITransport(dashboard(app, unprotected=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for page in PAGES:
            answer = await client.get(f"/{page}", follow_redirects=True)
            assert answer.status_code == 200, (page, answer.text[:1000])
            if page == "now":
                assert "All is well" in answer.text
    await app.close()


@together
def test_locks_are_handed_over_and_elections_won_with_tokens_that_grow(scene: Scene) -> None:
    move(scene)
    asyncio.run(_locks(scene.dsn))


async def _locks(dsn: str) -> None:
    one, two = App(dsn), App(dsn)
    tokens: list[int] = []
    async with one.node(), two.node():

        async def second() -> None:
            async with two.lock("report") as lock:
                tokens.append(lock.token)

        async with one.lock("report") as lock:
            tokens.append(lock.token)
            waiting = asyncio.create_task(second())
            await until_async(lambda: _waits(one), 30, "the second to wait")
            assert tokens == [lock.token]
        await asyncio.wait_for(waiting, 60)
        async with one.lock("report") as lock:
            tokens.append(lock.token)
    assert tokens == sorted(set(tokens)) and 0 < tokens[0] < 1 << 32
    await one.close()
    await two.close()


async def _waits(app: App) -> bool:
    return any(not row.granted for row in await (await app.inspect()).locks())
