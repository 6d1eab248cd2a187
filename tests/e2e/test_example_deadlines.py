"""The example of a deadline that two schedulers watch, killed and stopped at the worst moment."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import httpx
import pytest

from tests.e2e.test_examples import LEASEWORK, Example, looking_at, pid_of
from tests.support.wait import until


@pytest.fixture
def oncall(dsn, procs, migrated):
    with looking_at(dsn) as connection:
        yield OnCall(Example("deadlines", dsn, procs, connection))


class OnCall:
    """The stand-in for the outside, and two workers."""

    def __init__(self, example: Example) -> None:
        self.example = example
        server = example.python("oncall.py", "--port", "0", name="oncall")
        server.wait_for(r"listening on (http://\S+)")
        found = re.search(r"listening on (http://\S+)", server.output)
        assert found
        self.url = found[1]

    def start(self) -> None:
        self.example.start(
            *(*LEASEWORK, "worker", "settlement:app", "--processes", "2"),
            name="workers",
            ONCALL_URL=self.url,
            PROMISED_SECONDS="4",
        )
        count = "select count(*) from leasework.nodes"
        until(lambda: self.example.count(count) == 2, 30, "two workers")

    def enqueue(self) -> None:
        code = (
            "from settlement import *; app.sync.enqueue(settle.job(batch=1, bank_hangs=True)); "
            "app.sync.enqueue(settle.job(batch=2))"
        )
        done = self.example.python(
            "-c", code, name="enqueue", ONCALL_URL=self.url, PROMISED_SECONDS="4"
        )
        assert done.wait(30) == 0

    def ask(self, path: str) -> None:
        httpx.post(self.url + path, json={}).raise_for_status()

    def journal(self) -> dict[str, Any]:
        journal: dict[str, Any] = httpx.get(self.url + "/journal").json()
        return journal

    def until_paged(self) -> dict[str, Any]:
        """Somebody has paged, and waits for the answer."""
        self.ask("/hold")
        self.enqueue()
        page: dict[str, Any] = until(lambda: self.journal()["waiting"], 30, "a page")[0]
        return page

    def verdicts(self) -> list[tuple[str, str]]:
        rows = self.example.rows("select id, state from leasework.deadlines order by state")
        return [(str(row["id"]), row["state"]) for row in rows]


def test_killed_after_the_page_one_incident_is_open_and_the_repair_is_made(oncall):
    oncall.start()
    page = oncall.until_paged()
    os.kill(pid_of(page["by"]), signal.SIGKILL)
    oncall.ask("/release")
    until(lambda: oncall.journal()["repairs"], 30, "the repair by the other one")
    journal = oncall.journal()
    assert [incident["key"] for incident in journal["incidents"]] == [page["key"]]
    assert [again["key"] for again in journal["repeated"]] == [page["key"]]
    [repair] = journal["repairs"]
    assert repair["deadline"] == page["key"] and repair["by"] != page["by"]
    verdicts = oncall.verdicts()
    assert verdicts[0] == (page["key"], "breached")
    assert [state for _, state in verdicts] == ["breached", "met"]
    callbacks = "select attempt, crashes from leasework.jobs where task_name = %s"
    rows = oncall.example.rows(callbacks, "settlement.page_and_repair")
    assert [(row["attempt"], row["crashes"]) for row in rows] == [(2, 1)]


def test_a_stopped_one_that_comes_back_repairs_nothing(oncall):
    oncall.start()
    page = oncall.until_paged()
    pid = pid_of(page["by"])
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: len(oncall.journal()["waiting"]) == 2, 60, "the other one's page")
        oncall.ask("/release")
        until(lambda: oncall.journal()["repairs"], 30, "the other one's repair")
    finally:
        os.kill(pid, signal.SIGCONT)
    # it goes on with its late repair, and is refused; or is ended by its own guard before that
    until(lambda: oncall.journal()["refused"] or not alive(pid), 30, "the end of the stopped one")
    journal = oncall.journal()
    [repair] = journal["repairs"]
    assert repair["by"] != page["by"] and len(journal["incidents"]) == 1
    for refused in journal["refused"]:
        assert refused["by"] == page["by"] and refused["token"] < repair["token"]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_hand_made_version_pages_twice(oncall):
    naive = oncall.example.python("naive.py", "--deadlines", "20", name="naive")
    assert naive.wait(30) == 0
    found = re.search(r"20 deadlines, (\d+) pages", naive.output)
    assert found and 20 < int(found[1]) <= 40


if os.environ.get("LEASEWORK_LONG"):

    def test_it_runs_with_one_command(oncall):
        run = oncall.example.python("run.py", name="run")
        assert run.wait(90) == 0
        run.wait_for(r'"incidents": 1, "repeated": 1, "repairs": 1')
