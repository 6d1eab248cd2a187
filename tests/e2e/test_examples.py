"""The examples, each run as real processes with the commands of its README."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from tests.support.procs import ROOT, Process
from tests.support.wait import until

EXAMPLES = ROOT / "examples"
LEASEWORK = (sys.executable, "-m", "leasework")
RECOVER_WITHIN = 9.0


class Example:
    """Starts the commands of one example in its folder, on the database under test."""

    def __init__(
        self, name: str, dsn: str, procs: Any, connection: psycopg.Connection[dict[str, Any]]
    ) -> None:
        self._connection = connection
        self.folder = EXAMPLES / name
        self.dsn = dsn
        self._procs = procs
        self.env = {
            "LEASEWORK_DSN": dsn,
            "LEASEWORK_RECOVER_WITHIN": str(RECOVER_WITHIN),
        }

    def start(self, *command: str, name: str, **env: str) -> Process:
        in_folder = ["env", "-C", str(self.folder), *command]
        return self._procs.run(in_folder, name=name, env=self.env | env)

    def python(self, *arguments: str, name: str, **env: str) -> Process:
        return self.start(sys.executable, *arguments, name=name, **env)

    def rows(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        return self._connection.execute(query, parameters).fetchall()

    def count(self, query: str, *parameters: object) -> int:
        return next(iter(self.rows(query, *parameters)[0].values()))


def looking_at(dsn: str) -> psycopg.Connection[dict[str, Any]]:
    return psycopg.connect(dsn, autocommit=True, prepare_threshold=None, row_factory=dict_row)


@pytest.fixture
def example(dsn, procs, migrated):
    with looking_at(dsn) as connection:
        yield lambda name: Example(name, dsn, procs, connection)


def pid_of(worker_id: str) -> int:
    return int(worker_id.split(":")[1])


def last_json(process: Process) -> Any:
    return json.loads(process.output.splitlines()[-1])


@pytest.mark.parametrize("name", sorted(path.parent.name for path in EXAMPLES.glob("*/README.md")))
def test_each_example_says_how_to_run_it(name):
    readme = (EXAMPLES / name / "README.md").read_text()
    scripts = {path.name for path in (EXAMPLES / name).glob("*.py")}
    named = {word.strip("`,.:()") for word in readme.split()}
    assert scripts <= named, f"not in its README: {scripts - named}"


# -- fastapi_gunicorn ----------------------------------------------------------------------------
def test_four_workers_run_a_naive_schedule_four_times_and_leaseworks_exactly_once(example):
    profiles = example("fastapi_gunicorn")
    compared = profiles.python("compare.py", "--seconds", "6", "--json", name="compare")
    assert compared.wait(100) == 0
    report = last_json(compared)
    naive, leasework = report["naive"], report["leasework"]
    assert naive["due"] == leasework["due"] == 6
    assert 2 * naive["due"] <= naive["runs"] <= 4 * naive["due"]
    assert (leasework["runs"], leasework["missed"]) == (6, 0)
    assert leasework["cost_won"] == 6 * 120 and leasework["won_a_month"] == 30 * 120
    assert naive["won_a_month"] == round(naive["runs"] / naive["due"] * 30 * 120)
    assert 0 < leasework["cpu_seconds_of_the_runs"] < naive["cpu_seconds_of_the_runs"]
    # what the example counted in its own log is what the ledger says
    ticks = profiles.rows("select state, job_id from leasework.ticks")
    assert {tick["state"] for tick in ticks} == {"fired"}
    done = profiles.rows("select id, state, attempt from leasework.jobs")
    assert Counter(tick["job_id"] for tick in ticks) == Counter(job["id"] for job in done)
    assert {(job["state"], job["attempt"]) for job in done} == {("completed", 1)}


def test_no_due_moment_is_skipped_when_the_leading_gunicorn_worker_is_killed(example, tmp_path):
    profiles = example("fastapi_gunicorn")
    runs, socket = tmp_path / "runs.jsonl", tmp_path / "web.sock"
    profiles.python(
        *("-m", "gunicorn", "-c", "gunicorn.conf.py", "service:web", "--bind", f"unix:{socket}"),
        name="gunicorn",
        ANALYSIS_LOG=str(runs),
        ANALYSIS_EVERY_SECONDS="1",
    )

    def dues() -> list[str]:
        lines = runs.read_text().splitlines() if runs.exists() else []
        return [json.loads(line)["due"] for line in lines]

    def nodes() -> int:
        return profiles.count("select count(*) from leasework.nodes")

    until(lambda: len(dues()) >= 2 and nodes() == 4, 30, "four workers and two runs")
    leader = profiles.rows("select holder, term from leasework.leaders")[0]
    before = len(dues())
    os.kill(pid_of(leader["holder"]), signal.SIGKILL)
    until(lambda: len(dues()) >= before + 3, 30, "three runs after the kill")
    until(lambda: nodes() == 4, 30, "another worker in the place of the killed one")

    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket))) as web:
        latest = web.get("http://service/").json()
    assert len(latest) == 5 and {"due", "state", "by"} == set(latest[0])
    term = profiles.rows("select term from leasework.leaders")[0]["term"]
    assert term == leader["term"] + 1
    ledger = profiles.rows("select fire_at, state from leasework.ticks order by fire_at")
    assert {tick["state"] for tick in ledger} == {"fired"}
    first, last = ledger[0]["fire_at"], ledger[-1]["fire_at"]
    assert len(ledger) == (last - first).total_seconds() + 1
    rescued = profiles.count("select count(*) from leasework.events where kind = 'job_rescued'")
    assert len(dues()) - len(set(dues())) <= rescued


# -- shops ---------------------------------------------------------------------------------------
@contextmanager
def in_the_shop(socket: Path) -> Iterator[httpx.Client]:
    """A client of a web service that has sold something. The dashboard needs a login."""
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://service", timeout=20
    ) as web:
        job = web.post("/orders/7").json()["job"]
        assert web.post("/orders/7").json()["job"] == job, "one receipt for each order"
        until(lambda: web.get(f"/jobs/{job}").json()["state"] == "completed", 20, "the receipt")
        assert "order 7" in web.get(f"/jobs/{job}").json()["result"]
        assert web.get("/leasework/now").status_code == 401
        yield web


# -- flask_gunicorn ------------------------------------------------------------------------------
def test_the_workers_of_a_flask_application_run_its_reports_and_its_receipts(example, tmp_path):
    shop = example("flask_gunicorn")
    socket = tmp_path / "web.sock"
    shop.python(
        *("-m", "gunicorn", "-c", "gunicorn.conf.py", "service:web", "--bind", f"unix:{socket}"),
        name="gunicorn",
        REPORT_EVERY_SECONDS="1",
    )
    until(lambda: shop.count("select count(*) from leasework.nodes") == 4, 30, "four workers")
    with in_the_shop(socket) as web:
        web.post("/login", data={"name": "Ada", "password": "example"})
        assert web.get("/leasework/now").status_code == 200
    until(lambda: shop.count("select count(*) from leasework.ticks") >= 3, 20, "three reports")
    leaders = shop.start(
        *(sys.executable, "-m", "flask", "--app", "service", "leasework", "leaders"), name="flask"
    )
    assert leaders.wait(60) == 0 and "shop" in leaders.output


# -- asgi_uvicorn --------------------------------------------------------------------------------
@pytest.mark.parametrize("service", ["starlette_service", "litestar_service"])
def test_the_workers_of_an_asgi_application_run_its_reports_and_its_receipts(
    example, tmp_path, service
):
    shop = example("asgi_uvicorn")
    socket = tmp_path / "web.sock"
    shop.python(
        *("-m", "uvicorn", "--workers", "2", "--uds", str(socket), f"{service}:web"),
        name="uvicorn",
        REPORT_EVERY_SECONDS="1",
    )
    until(lambda: shop.count("select count(*) from leasework.nodes") == 2, 30, "two workers")
    with in_the_shop(socket) as web:
        login = ("Ada", "an example password: set your own")
        assert web.get("/leasework/now", auth=login).status_code == 200
    until(lambda: shop.count("select count(*) from leasework.ticks") >= 3, 20, "three reports")


# -- content_engine ------------------------------------------------------------------------------
class Engine:
    """The content engine's outside API and its services."""

    def __init__(self, example: Example) -> None:
        self.example = example
        self.rows = example.rows
        api = example.python("outside_api.py", "--port", "0", name="api")
        self.url = api.wait_for(r"^listening on (\S+)")[1]

    def make_posts(self, count: int) -> None:
        code = f"import asyncio, posts; asyncio.run(posts.make({count}))"
        assert self.example.python("-c", code, name="posts").wait(60) == 0

    def service(self, release: str) -> Process:
        return self.example.start(
            *(*LEASEWORK, "worker", "engine:app", "--processes", "2"),
            name=release,
            LEASEWORK_RELEASE=release,
            ENGINE_API=self.url,
            ENGINE_HOUR_SECONDS="0.25",
        )

    def api(self, verb: str) -> None:
        assert httpx.post(f"{self.url}/{verb}").is_success

    @property
    def journal(self) -> dict[str, Any]:
        return httpx.get(f"{self.url}/journal").json()

    def received(self) -> Counter[int]:
        return Counter(entry["post"]["post"] for entry in self.journal["posts"])

    def drained(self) -> bool:
        return not self.rows("select id from example_post where published_at is null")

    def releases_at_work(self) -> set[str]:
        return {row["release"] for row in self.rows("select release from leasework.nodes")}

    def sweeps(self) -> list[int]:
        counts = self.rows(
            "select count(*) from example_post where sweep is not null group by sweep"
        )
        return [row["count"] for row in counts]


@pytest.fixture
def engine(example) -> Engine:
    return Engine(example("content_engine"))


def test_blue_and_green_at_once_drain_the_backlog_and_publish_each_post_once(engine):
    engine.make_posts(10)
    engine.service("blue")
    engine.service("green")
    until(lambda: engine.releases_at_work() == {"blue", "green"}, 30, "blue and green at work")
    until(engine.drained, 40, "the end of the backlog", every=0.1)

    assert engine.received() == Counter(range(1, 11))
    remote = {entry["post"]["post"]: entry["id"] for entry in engine.journal["posts"]}
    noted = engine.rows("select id, remote_id from example_post")
    assert remote == {post["id"]: post["remote_id"] for post in noted}
    assert max(engine.sweeps()) == 3 and sum(engine.sweeps()) == 10
    # whatever the API refused took nothing from their attempts
    jobs = engine.rows("select state, attempt from leasework.jobs where completed_at is not null")
    assert {(job["state"], job["attempt"]) for job in jobs} == {("completed", 1)}
    ticks = engine.rows("select schedule, fire_at, state from leasework.ticks")
    assert {tick["state"] for tick in ticks} == {"fired"}


def test_a_kill_after_the_post_has_arrived_doubles_nothing(engine):
    engine.make_posts(6)
    engine.api("hold")
    engine.service("blue")
    engine.service("green")
    until(lambda: engine.journal["waiting"], 30, "a post that waits for its answer")
    victim = engine.journal["posts"][-1]
    os.kill(int(victim["client"].split("/")[1]), signal.SIGKILL)
    engine.api("release")
    until(engine.drained, 40, "the end of the backlog", every=0.1)

    assert engine.received() == Counter(range(1, 7))
    # it was sent again, with the same key, and the API knew it
    assert victim["key"] in engine.journal["replayed"]
    noted = engine.rows("select remote_id from example_post where id = %s", victim["post"]["post"])
    assert noted[0]["remote_id"] == victim["id"]


def test_the_other_jobs_of_the_content_engine_run_beside_it(engine):
    engine.make_posts(3)
    engine.service("blue")
    tasks = {"daily_top3", "profile_analysis", "model_health_check"}
    wanted = {f"engine.{task}" for task in tasks}

    def results() -> dict[str, Any]:
        done = engine.rows(
            "select task_name, result from leasework.jobs "
            "where state = 'completed' and schedule is not null order by completed_at"
        )
        return {row["task_name"]: row["result"] for row in done}

    until(lambda: wanted <= set(results()), 40, "a run of each", every=0.1)
    assert results()["engine.model_health_check"] == {"writer": True, "critic": True}
    assert results()["engine.profile_analysis"] == {"mean_likes": pytest.approx(61.7, abs=50)}
    known = {row["task_name"] for row in engine.rows("select task_name from leasework.schedules")}
    assert known == wanted | {"engine.sweep", "engine.weekly_report"}


def test_the_content_engine_runs_with_one_command(example):
    run = example("content_engine").python(
        *("run.py", "--posts", "4", "--kill", "--json"), name="run", ENGINE_HOUR_SECONDS="0.25"
    )
    assert run.wait(60) == 0
    figures = last_json(run)
    assert figures["published"] == figures["received_by_the_api"] == figures["posts"] == 4
    assert (figures["doubled"], figures["waiting"]) == (0, 0)
    assert figures["repeated_and_recognised"] >= 1
    assert figures["most_posts_in_a_sweep"] == 3


# -- job_queue -----------------------------------------------------------------------------------
def test_three_workers_share_the_jobs_and_failing_payments_are_retried_then_discarded(example):
    queue = example("job_queue")
    queue.start(
        *LEASEWORK, "worker", "tasks:app", "--processes", "3", name="workers", PAGE_SECONDS="0.5"
    )
    until(lambda: queue.count("select count(*) from leasework.nodes") == 3, 30, "three workers")
    workers = {row["worker_id"] for row in queue.rows("select worker_id from leasework.nodes")}
    amounts = ("--emails", "600", "--reports", "3", "--payments", "9", "--failing", "2")
    produce = queue.python("produce.py", *amounts, "--wait", name="produce")

    # one of them is killed while it works at a report
    report = until(
        lambda: queue.rows(
            "select id, worker_id, progress_note from leasework.jobs "
            "where task_name = 'tasks.generate_report' and state = 'running' "
            "and progress between 0.1 and 0.4"
        ),
        30,
        "a report in progress",
    )[0]
    assert report["progress_note"].startswith("page ")
    os.kill(pid_of(report["worker_id"]), signal.SIGKILL)

    assert produce.wait(60) == 0
    jobs = queue.rows("select * from leasework.jobs")
    assert Counter((job["task_name"], job["state"]) for job in jobs) == {
        ("tasks.send_email", "completed"): 600,
        ("tasks.generate_report", "completed"): 3,
        ("tasks.process_payment", "completed"): 7,
        ("tasks.process_payment", "discarded"): 2,
    }
    assert re_run(jobs, report["id"])["worker_id"] != report["worker_id"]
    assert workers - {report["worker_id"]} <= {job["worker_id"] for job in jobs}
    for job in jobs:
        if job["state"] == "discarded":
            assert job["attempt"] - job["crashes"] == 3
            assert job["last_error"].startswith("GatewayDown: no answer for order")
            assert "tasks.py" not in job["last_error"] and "tasks.py" in job["traceback"]
            assert "executor.py" not in job["traceback"]
            assert job["payload"]["gateway_down"] is True
        else:
            assert job["attempt"] == 1 + job["crashes"]

    listed = queue.start(*LEASEWORK, "jobs", "--state", "discarded", "--json", name="jobs")
    assert listed.wait(60) == 0
    failed = {str(job["id"]) for job in jobs if job["state"] == "discarded"}
    assert {job["id"] for job in json.loads(listed.output)} == failed
    status = queue.start(*LEASEWORK, "status", "--json", name="status")
    assert status.wait(60) == 1, "the discarded payments are a problem"
    kinds = {problem["kind"] for problem in json.loads(status.output)["problems"]}
    assert "jobs_discarded" in kinds and kinds <= {"jobs_discarded", "jobs_failing", "node_died"}


def re_run(jobs: list[dict[str, Any]], job_id: object) -> dict[str, Any]:
    job = next(job for job in jobs if job["id"] == job_id)
    assert (job["attempt"], job["crashes"]) == (2, 1)
    return job


def test_the_job_queue_runs_with_one_command(example):
    run = example("job_queue").python("run.py", name="run")
    assert run.wait(60) == 0
    run.wait_for(r"200 tasks.send_email completed")
    run.wait_for(r"4 tasks.process_payment discarded")


# -- fenced_store --------------------------------------------------------------------------------
def test_an_outside_store_refuses_the_lower_token_of_a_worker_that_came_back(example):
    run = example("fenced_store").python("run.py", "--json", name="run")
    assert run.wait(90) == 0
    found = last_json(run)
    assert found["fenced"] == "as attempt 2 made it"
    assert found["trusting"] == "as attempt 1 made it", "what happens without tokens"
    writes = [(w["path"].split("/")[1], w["accepted"]) for w in found["journal"]]
    assert sorted(writes[:2]) == [("fenced", True), ("trusting", True)]
    assert sorted(writes[2:]) == [("fenced", False), ("trusting", True)]
    newer, late = found["journal"][0]["token"], found["journal"][2]["token"]
    assert late < newer


# -- approval ------------------------------------------------------------------------------------
def test_an_agent_goes_on_where_it_was_after_its_worker_was_killed(example):
    run = example("approval").python("run.py", name="run")
    assert run.wait(120) == 0
    run.wait_for(r"^answer: done: booked")
    run.wait_for(r"^calls: model 0, tool search: prices, model 1, tool pay: 120 EUR, model 2$")
