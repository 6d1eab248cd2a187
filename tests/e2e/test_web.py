"""Web servers with several workers: the lifespan, schedules, and the death of the leader."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.apps.no_lifespan import GUNICORN
from tests.e2e.apps.service import (
    AT_ONCE,
    POOLED,
    RECOVER_WITHIN,
    TIMINGS,
    Database,
    Service,
    check_each_second,
    measured,
)
from tests.support import postgres as servers
from tests.support.pgbouncer import PgBouncer
from tests.support.procs import Processes
from tests.support.wait import BUSY_SECONDS, until

SECONDS = 30 if os.environ.get("LEASEWORK_LONG") else 12
F = TIMINGS.failover + BUSY_SECONDS
RECOVERED = RECOVER_WITHIN + BUSY_SECONDS

Start = Callable[..., Service]


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    opened = Database(dsn)
    yield opened
    opened.close()


@pytest.fixture
def service(procs: Processes, dsn: str) -> Start:
    """``service(name="default", release="", **env)``, still to be started."""

    def make(name: str = "default", release: str = "", **env: str) -> Service:
        return Service(procs, dsn, name, release, env)

    return make


def first_tick(service: Service) -> float:
    return float(until(lambda: service.noted("tick"), 30, "the first tick")[0].key)


# -- each due second once --------------------------------------------------------------------------
SHAPES: dict[str, Callable[[Service], Service]] = {
    "gunicorn": lambda s: s.gunicorn(4),
    "gunicorn-preload": lambda s: s.gunicorn(4, "--preload"),
    "uvicorn": lambda s: s.uvicorn(4),
}


@pytest.fixture(scope="module")
def shapes(postgres: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Service]]:
    """Three services at once, each with four workers and a database of its own."""
    with ExitStack() as stack:
        databases = {}
        for shape in SHAPES:
            dsn = stack.enter_context(servers.database(postgres.dsn))
            if POOLED:
                bouncer = PgBouncer(dsn)
                stack.callback(bouncer.close)
                dsn = bouncer.dsn
            databases[shape] = Database(dsn)
            stack.callback(databases[shape].close)
        procs = stack.enter_context(Processes(tmp_path_factory.mktemp("shapes")))
        running = {
            shape: start(Service(procs, databases[shape].dsn, shape, "", {}))
            for shape, start in SHAPES.items()
        }
        for shape, database in databases.items():
            database.wait_for_nodes(4, shape)
        yield running


@pytest.mark.parametrize("shape", SHAPES)
def test_four_workers_run_each_due_second_once(shapes: dict[str, Service], shape: str) -> None:
    service = shapes[shape]
    check_each_second(service.journal, first_tick(service), SECONDS)
    print(f"\nMEASURED {shape}: {SECONDS + 1} due seconds, each ran once in 4 workers")


def test_the_app_is_loaded_before_the_fork_only_with_preload(shapes: dict[str, Service]) -> None:
    """And what a process knows of itself is its own, not the arbiter's."""
    preloaded, other = shapes["gunicorn-preload"].get(), shapes["gunicorn"].get()
    assert preloaded["loaded_by"] == shapes["gunicorn-preload"].process.pid
    assert other["loaded_by"] == other["pid"]
    assert preloaded["env_pid"] == preloaded["pid"]


def test_the_lifespan_wraps_the_users_own(shapes: dict[str, Service]) -> None:
    assert shapes["gunicorn"].get()["greeting"] == "from the user's own lifespan"
    assert len(shapes["gunicorn"].noted("own-start")) == 4


# -- the leader dies -------------------------------------------------------------------------------
def test_the_leading_worker_is_killed(service: Start, database: Database) -> None:
    web = service().gunicorn(2)
    leader = database.wait_for_nodes(2)
    first = first_tick(web)
    killed_at = time.time()
    os.kill(leader, signal.SIGKILL)
    acquired_at = database.next_term(killed_at)
    measured("takeover after kill -9 of the leader under gunicorn", acquired_at - killed_at, F)
    check_each_second(web.journal, first, int(acquired_at - first) + 2, killed=leader)


def test_workers_on_uvloop_go_on_whenever_their_connections_are_broken(
    service: Start, database: Database
) -> None:
    web = service().uvicorn(2, "--loop", "uvloop")
    database.wait_for_nodes(2)
    first_tick(web)
    for number in range(10):
        until(lambda: database.connections() >= 2, 30, "both workers to be connected again")
        jobs = database.enqueue("tests.e2e.apps.web.work", 30, seconds=0)
        broken = database.break_connections()
        until(lambda jobs=jobs: database.finished(jobs), 30, f"the jobs of round {number}")
        assert broken >= 2
    ticks = len(web.noted("tick"))
    until(lambda: len(web.noted("tick")) > ticks + 1, 20, "ticks to go on")


def test_a_stopped_service_resigns_at_once_and_drains(service: Start, database: Database) -> None:
    """SIGTERM: another service leads before the first has finished its jobs, which it does."""
    old = service("default", "blue", SLOTS="1").gunicorn(2)
    leader = database.wait_for_nodes(2)
    service("default", "green", NO_EXECUTE="1").gunicorn(2)
    database.wait_for_nodes(4)
    jobs = database.enqueue("tests.e2e.apps.web.work", 6, seconds=8)
    until(lambda: len(old.noted("work-began")) >= 2, 10, "a running job in each worker")
    stopped_at = time.time()
    old.process.kill(signal.SIGTERM)
    acquired_at = database.next_term(stopped_at)
    # another worker of the old service may lead first, and resign as well
    until(lambda: database.leader() not in (None, leader), 10, "another leader")
    measured("takeover after SIGTERM of the leader's service", acquired_at - stopped_at, AT_ONCE)
    assert old.process.wait(30) == 0
    assert all(entry.at > acquired_at for entry in old.noted("work-done")), (
        "it resigned only after its jobs"
    )
    began = {entry.key for entry in old.noted("work-began")}
    assert {entry.key for entry in old.noted("work-done")} == began
    left = "select id::text from leasework.jobs where state = 'available' and queue = 'work'"
    available = {job for (job,) in database.rows(left)}  # and perhaps green's own
    assert available & set(jobs) == set(jobs) - began, "what did not run was given back"
    assert len(database.nodes()) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asgi_workers_without_a_lifespan_drain_when_they_are_stopped(
    procs: Processes, dsn: str, database: Database, number: signal.Signals
) -> None:
    web = Service(procs, dsn, "default", "", {}, "tests.e2e.apps.no_lifespan:asgi")
    web.gunicorn(2, hooks=GUNICORN)
    database.wait_for_nodes(2)
    assert web.get() == {}
    database.enqueue("tests.e2e.apps.web.work", 2, seconds=4)
    until(lambda: len(web.noted("work-began")) == 2, 20, "two running jobs")
    web.process.kill(number, group=number is signal.SIGINT)  # as a terminal does it
    assert web.process.wait(30) == 0
    assert len(web.noted("work-done")) == 2
    assert database.nodes() == []


def test_without_execute_the_web_workers_run_no_job(service: Start, database: Database) -> None:
    web = service(NO_EXECUTE="1").gunicorn(2)
    database.wait_for_nodes(2)
    waiting = "select from leasework.jobs where state = 'available' and queue = 'ticks'"
    until(lambda: len(database.rows(waiting)) >= 3, 20, "three ticks that nobody works")
    assert web.get()["greeting"], "they serve requests"
    assert not web.noted("tick")
    elsewhere = service().worker()
    until(lambda: len(web.noted("tick")) >= 5, 20, "ticks that a worker elsewhere runs")
    assert {entry.pid for entry in web.noted("tick")} == {elsewhere.process.pid}


# -- deployments -----------------------------------------------------------------------------------
def test_blue_and_green_run_each_second_once_and_the_newer_definitions_win(
    service: Start, database: Database
) -> None:
    """2 x 2 workers of two releases at once, also over a kill -9 of the leader."""

    def nightly() -> list[str]:
        """The cron expression and the release of the schedule that two releases define."""
        found = database.rows(
            "select described, release from leasework.schedules where name = 'nightly'"
        )
        return [str(word) for row in found for word in row]

    blue = service("default", "blue", CRON="1 3 * * *").gunicorn(2)
    database.wait_for_nodes(2)
    first = first_tick(blue)
    assert nightly()[1] == "blue"
    green = service("default", "green", CRON="2 4 * * *").gunicorn(2)
    database.wait_for_nodes(4)
    until(lambda: nightly()[1] == "green", 10, "green's definitions")
    of_green = nightly()[0]
    leader = database.leader()
    assert leader
    killed_at = time.time()
    os.kill(leader, signal.SIGKILL)
    acquired_at = database.next_term(killed_at)
    what = "takeover after kill -9 of the leader, blue and green"
    measured(what, acquired_at - killed_at, F)
    database.wait_for_nodes(4)
    check_each_second(blue.journal, first, max(SECONDS, int(time.time() - first)), leader)
    assert nightly() == [of_green, "green"], "a blue worker that starts again changes nothing"
    both = {"blue", "green"}
    until(lambda: {e.release for e in blue.noted("tick")} == both, 60, "a tick in each release")

    green.process.kill(signal.SIGTERM)
    assert green.process.wait(60) == 0
    until(lambda: nightly()[1] == "blue", 10, "blue's definitions")
    assert nightly()[0] != of_green
    warmed = blue.noted("warm-done")
    assert len({entry.key for entry in warmed}) == len(warmed) == 2, "once per release"


def test_a_job_of_a_deployment_runs_again_when_its_worker_is_killed(
    service: Start, database: Database
) -> None:
    web = service("default", "v1", WARM_HANGS="1").gunicorn(4, "--preload")
    database.wait_for_nodes(4)
    [began] = until(lambda: web.noted("warm-began"), 10, "the job of the deployment")
    killed_at = time.time()
    os.kill(began.pid, signal.SIGKILL)
    [done] = until(lambda: web.noted("warm-done"), RECOVERED, "its second run")
    measured("a job of the deployment done elsewhere after kill -9", done.at - killed_at, RECOVERED)
    assert done.key == began.key
    database.wait_for_nodes(4)  # the new worker's node had its turn too
    assert len(web.noted("warm-began")) == 2
    states = "select state from leasework.jobs where queue = 'work'"
    until(lambda: database.rows(states) == [("completed",)], 5, "its completion, recorded")
