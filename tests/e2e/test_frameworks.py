"""Web frameworks under their servers: each tick runs once, also when a worker is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.apps.flask_web import GUNICORN
from tests.e2e.apps.service import TIMINGS, Database, Service, check_each_second, measured
from tests.support.procs import Processes
from tests.support.relay import Relay
from tests.support.wait import BUSY_SECONDS, until

LIMIT = TIMINGS.failover + BUSY_SECONDS
WORKERS = 4

SHAPES: dict[str, tuple[str, Callable[[Service], Service]]] = {
    "flask": (
        "tests.e2e.apps.flask_web:web",
        lambda s: s.gunicorn(WORKERS, hooks=GUNICORN),
    ),
    "flask-preload": (
        "tests.e2e.apps.flask_web:web",
        lambda s: s.gunicorn(WORKERS, "--preload", "-k", "sync", hooks=GUNICORN),
    ),
    "starlette": (
        "tests.e2e.apps.starlette_web:asgi",
        lambda s: s.uvicorn(WORKERS),
    ),
    "litestar": (
        "tests.e2e.apps.litestar_web:asgi",
        lambda s: s.uvicorn(WORKERS),
    ),
}


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    opened = Database(dsn)
    yield opened
    opened.close()


@pytest.mark.parametrize("shape", SHAPES)
def test_each_tick_runs_once_in_four_workers_also_when_the_leader_is_killed(
    procs: Processes, database: Database, shape: str
) -> None:
    target, start = SHAPES[shape]
    web = start(Service(procs, database.dsn, "default", "", {}, target))
    leader = database.wait_for_nodes(WORKERS)
    first = float(until(lambda: web.noted("tick"), 30, "the first tick")[0].key)
    assert leader != web.process.pid
    job = web.get("/enqueue")["job"]
    until(lambda: database.finished([job]), 20, "the job that a view enqueued")
    killed_at = time.time()
    os.kill(leader, signal.SIGKILL)
    acquired_at = database.next_term(killed_at)
    measured(f"{shape}: takeover after kill -9 of the leader", acquired_at - killed_at, LIMIT)
    check_each_second(web.journal, first, int(acquired_at - first) + 2, killed=leader)
    database.wait_for_nodes(WORKERS)
    assert web.get()["pid"] != leader

    web.process.kill(signal.SIGTERM)
    assert web.process.wait(30) == 0
    assert database.nodes() == [], "each worker left in good order"


def test_the_process_that_uvicorn_reloads_has_the_grace_of_development(
    procs: Processes, tmp_path: Path
) -> None:
    code = "from leasework import App\nprint('grace', App().settings.grace, flush=True)\n"
    (tmp_path / "reloaded.py").write_text(f"{code}async def web(scope, receive, send): ...\n")
    here = ["--app-dir", str(tmp_path), "--reload-dir", str(tmp_path)]
    where = ["--uds", str(tmp_path / "web.sock"), "reloaded:web"]
    process = procs.start("-m", "uvicorn", "--reload", *here, *where)
    process.wait_for(r"^grace 0\.5$", 30)
    process.kill(signal.SIGTERM)
    assert process.wait(30) == 0


def test_gunicorn_goes_on_when_a_new_worker_cannot_reach_the_database(
    procs: Processes, database: Database
) -> None:
    with Relay(database.dsn) as link:
        env = {"LEASEWORK_CALL_TIMEOUT": "0.5"}
        web = Service(procs, link.dsn, "default", "", env, SHAPES["flask"][0])
        web.gunicorn(2, hooks=GUNICORN)
        database.wait_for_nodes(2)
        link.silence()
        os.kill(database.nodes()[0], signal.SIGKILL)
        refused = "this worker cannot start: "
        until(lambda: web.process.output.count(refused) >= 2, 40, "two attempts to replace it")
        assert web.get()["pid"]
        web.process.kill(signal.SIGTERM)
        assert web.process.wait(40) == 0
