"""What handlers do to their worker, and what comes of their jobs and of their neighbours."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.e2e.test_cli_worker import Shop
from tests.support.procs import Process
from tests.support.wait import until

pytestmark = pytest.mark.timeout(240)

Open = Callable[[str], Shop]


@pytest.fixture
def opened(procs, dsn) -> Open:
    """``opened(code)``: a shop whose application is ``code``."""

    def opens(code: str) -> Shop:
        shop = Shop(procs, dsn)
        (procs.folder / "shop.py").write_text(code)
        assert shop.leasehold("schema", "apply").wait(60) == 0
        return shop

    return opens


def ended(shop: Shop, jobs: list[str], seconds: float = 60.0) -> list[str]:
    """Their states, once all of them have finished."""
    over = ("completed", "discarded", "cancelled", "quarantined")

    def states() -> list[str] | None:
        found = [shop.state(job) for job in jobs]
        return found if all(state in over for state in found) else None

    found = until(states, seconds, "the end of all jobs")
    assert found
    return found


def stops_cleanly(worker: Process) -> None:
    worker.kill(signal.SIGTERM)
    assert worker.wait(60) == 0


CHOKED = """
import resource
from leasehold import App

app = App(name="shop")
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

@app.task(name="choke")
async def choke() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))

@app.task(name="free")
async def free() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

@app.task(name="child", executor="process", max_attempts=1)
def child() -> str:
    return "done"
"""


def test_a_job_goes_back_uncounted_while_its_worker_can_start_no_process(opened: Open) -> None:
    shop = opened(CHOKED)
    worker = shop.worker()
    ended(shop, [shop.enqueue("choke")])
    jobs = [shop.enqueue("child") for _ in range(3)]
    went_back = "select count(distinct job_id) from leasehold.attempt where outcome = 'no_process'"
    until(lambda: shop.sql(went_back) == [(3,)], 60, "all jobs went back")
    until(lambda: "cannot start" in said(shop, "status"), 60, "the problem in status")
    assert "no child process could be started" in said(shop, "jobs", "show", jobs[0])
    ended(shop, [shop.enqueue("free")])
    assert ended(shop, jobs) == ["completed"] * 3
    assert shop.sql("select distinct attempt from leasehold.jobs where task_name = 'child'") == [
        (1,)
    ]
    assert shop.kinds().count("process_not_started") == 1
    until(lambda: "cannot start" not in said(shop, "status"), 60, "the end of the problem")
    stops_cleanly(worker)


def said(shop: Shop, *command: str) -> str:
    process = shop.leasehold(*command)
    process.wait(60)
    return process.output
