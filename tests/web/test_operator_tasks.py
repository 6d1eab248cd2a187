"""Twenty tasks of an operator: each in at most four clicks in a real browser, and by one command.

The tasks are the rows of the table in docs/explanation/operating.md. The browser counts: each press
of a mouse button, also to focus a field, and each press of Enter. Typing is no click.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support import postgres as servers
from tests.support.procs import ROOT, Process, Processes
from tests.support.wait import until
from tests.web.conftest import Open, Scene

MOST = 4
PAGE = ROOT / "docs" / "explanation" / "operating.md"
COUNT = """
const count = () => sessionStorage.setItem("clicks", 1 + Number(sessionStorage.getItem("clicks")));
addEventListener("mousedown", count, true);
addEventListener("keydown", (event) => { if (event.key === "Enter") count(); }, true);
"""
HISTORY = """
insert into leasework.history (at, queue, task_name, completed, failed, wait, run)
select date_trunc('minute', now()) - at, 'packing', 'pack', 50, 0, '{"12": 50}', '{"18": 50}'
from unnest('{5 min,3 days}'::interval[]) at
on conflict do nothing
"""


class Hand:
    """A person at the page: it only clicks what it sees, types and reads."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        page.add_init_script(COUNT)
        page.goto(url + "now")
        page.wait_for_selector(".link.on")

    @property
    def clicks(self) -> int:
        return int(self.page.evaluate("Number(sessionStorage.getItem('clicks'))"))

    def click(self, what: str, row: str = "") -> None:
        """Click the first visible one, in the table's row with this text if one is given."""
        within = self.page.locator("main tr", has_text=row) if row else self.page
        within.locator(f"{what} >> visible=true").first.click()

    def go(self, name: str) -> None:
        """To a page of the navigation."""
        self.click(f"nav a:text-is('{name}')")
        self.page.wait_for_selector(f"h1:text-is('{name}')")

    def write(self, field: str, text: str, row: str = "") -> None:
        self.click(field, row)
        self.page.keyboard.type(text)

    def sees(self, text: str, within: str = "main") -> None:
        self.page.wait_for_selector(f"{within} >> text={text} >> visible=true")

    def opens(self, job: UUID) -> None:
        """From the list of jobs."""
        self.click(f'a.row[href$="{job}"]')
        self.page.wait_for_url(f"**/jobs/{job}")


class Shop(Scene):
    """The shop's database, worker and dashboard."""

    def jobs(self, task: str, queue: str, state: str, count: int = 1, **options: Any) -> list[UUID]:
        """Enqueue jobs, and wait until they are in this state."""
        made = [
            self.enqueue(task, queue, payload={"order": n} if task != "import" else {}, **options)
            for n in range(count)
        ]
        for job in made:
            self.wait_state(job, state)
        return made

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        words = shlex.split(command)
        assert words.pop(0) == "leasework"
        return subprocess.run(
            [sys.executable, "-m", "leasework", *words],
            cwd=ROOT,
            env={**os.environ, "LEASEWORK_DSN": self.dsn},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def fingerprint(self, error: str) -> Any:
        rows = json.loads(self.run("leasework failures --since 1h --json").stdout)
        return next(row["fingerprint"] for row in rows if error in row["pattern"])

    def second_worker(self) -> tuple[Process, str]:
        """Start another one, which takes part in packing, and return it with its worker id."""
        name = f"worker-{len(self.procs.all)}"
        words = ("-m", "leasework", "worker", "tests.web.shop:app", "-q", "packing=1")
        process = self.procs.start(*words, name=name, env={"LEASEWORK_DSN": self.dsn})
        query = "select worker_id from leasework.nodes where worker_id like %s"
        like = f"%:{process.pid}:%"
        until(lambda: self.sql(query, like), 60)
        return process, self.sql(query, like)[0][0]


@pytest.fixture(scope="module")
def shop(postgres: Any, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("shop")
    with servers.database(postgres.dsn, template=template) as dsn, Processes(folder) as procs:
        words = ("-m", "leasework", "worker", "tests.web.shop:app")
        worker = procs.start(*words, name="worker", env={"LEASEWORK_DSN": dsn})
        made = Shop("", dsn, procs, worker)
        made.url = made.web()
        until(lambda: made.sql("select 1 from leasework.leaders where holder is not null"), 60)
        until(lambda: len(made.sql("select 1 from leasework.schedule")) == 4, 60)
        made.sql(HISTORY)
        made.jobs("pack", "packing", "completed", 100)
        made.jobs("pack", "courier", "available", 3)
        yield made


Walk = Generator[dict[str, Any], str, None]
"""The steps on the page, up to the yield of the words that the command needs. What the command
printed comes back."""
Walker = Callable[[Shop, Hand], Walk]


@dataclass(frozen=True)
class Task:
    says: str
    path: str
    clicks: int
    command: str
    walk: Walker
    status: int
    """The exit status of the command."""

    @property
    def row(self) -> str:
        shown = self.command.replace("{", "").replace("}", "")
        return f"| {self.says} | {self.path} | {self.clicks} | `{shown}` |"


TASKS: list[Task] = []


def task(
    says: str, path: str, clicks: int, command: str, status: int = 0
) -> Callable[[Walker], Walker]:
    def note(walk: Walker) -> Walker:
        TASKS.append(Task(says, path, clicks, command, walk, status))
        return walk

    return note


@pytest.fixture
def hand(shop: Shop, page_at: Open) -> Hand:
    return Hand(page_at(shop.url + "now"), shop.url)


# -- what happens ----------------------------------------------------------------------------------
UNWORKED = "Queue 'courier' has available jobs, but no live node runs them"


@task(
    "See what is wrong, and what helps",
    "*Overview*",
    0,
    "leasework status",
    status=1,
)
def wrong(shop: Shop, hand: Hand) -> Walk:
    hand.sees(UNWORKED)
    hand.sees("Start a worker")
    said = yield {}
    assert UNWORKED in said


@task(
    "See why a job does not run",
    "*Overview*, the queue's *Oldest due*",
    1,
    "leasework jobs show {ID}",
)
def why(shop: Shop, hand: Hand) -> Walk:
    [(job,)] = shop.sql("select id from leasework.jobs where queue = 'courier' order by id limit 1")
    hand.click("[data-label='Oldest due'] a", "courier")
    hand.page.wait_for_url(f"**/jobs/{job}")
    hand.sees("No live node works the queue 'courier'", ".why")
    said = yield {"ID": job}
    assert "No live node works the queue 'courier'" in said


@task(
    "See what a job that hangs is doing: its stack",
    "*Overview*, the queue, the job, *Show stack*",
    3,
    "leasework jobs stack {ID}",
)
def stack(shop: Shop, hand: Hand) -> Walk:
    [job] = shop.jobs("import", "imports", "running")
    hand.click("a.row", "imports")
    hand.opens(job)
    hand.click("button:text-is('Show stack')")
    hand.sees("await asyncio.Event().wait()", "#stack")
    said = yield {"ID": job}
    assert "await asyncio.Event().wait()" in said


@task(
    "Take a running job from its worker",
    "*Overview*, the queue, the job, *Take away*",
    3,
    "leasework jobs requeue {ID}",
)
def take(shop: Shop, hand: Hand) -> Walk:
    [job] = shop.jobs("import", "imports", "running")
    query = "select claim_token from leasework.jobs where id = %s and state = 'running'"
    [before] = shop.sql(query, job)
    hand.click("a.row", "imports")
    hand.opens(job)
    hand.click("button:text-is('Take away')")
    hand.sees("Job taken from its worker and queued again")
    until(lambda: shop.sql(query, job) not in ([], [before]), 60, "the next claim")
    [after] = shop.sql(query, job)
    yield {"ID": job}
    until(lambda: shop.sql(query, job) not in ([], [after]), 60, "the claim after that")


@task(
    "Cancel a job",
    "*Overview*, the queue, the job, *Cancel*",
    3,
    "leasework jobs cancel {ID}",
)
def cancel(shop: Shop, hand: Hand) -> Walk:
    first, second = shop.jobs("import", "imports", "running", 2)
    hand.click("a.row", "imports")
    hand.opens(first)
    hand.click("button:text-is('Cancel')")
    hand.sees("Cancellation requested")
    shop.wait_state(first, "cancelled")
    yield {"ID": second}
    shop.wait_state(second, "cancelled")


def filters(hand: Hand, query: str, job: UUID) -> None:
    """Filter the list of jobs, in which only this one is left."""
    hand.go("Jobs")
    hand.write("#q", query)
    hand.page.keyboard.press("Enter")
    hand.page.wait_for_selector(f'a.row[href$="{job}"]')
    assert hand.page.locator("a.row").count() == 1


def failures_of_an_hour(hand: Hand) -> None:
    hand.go("Failures")
    hand.click(".chips a:text-is('1h')")
    hand.page.wait_for_selector(".chips a[aria-current]:text-is('1h')")


@task(
    "Find a job by an argument",
    "*Jobs*, the filter `args.order:4711`, Enter",
    3,
    'leasework jobs --where "args.order:4711"',
)
def find(shop: Shop, hand: Hand) -> Walk:
    job = shop.enqueue("pack", "packing", payload={"order": 4711})
    filters(hand, "args.order:4711", job)
    said = yield {}
    assert str(job) in said


@task(
    "Read the traceback and the log of a failed attempt",
    "*Overview*, the job under *Newest discarded jobs*, the error, *Log*",
    3,
    "leasework jobs show {ID}",
)
def read(shop: Shop, hand: Hand) -> Walk:
    [job] = shop.jobs("charge", "payments", "discarded", max_attempts=1)
    link = f'.lines a[href$="{job}"]'
    hand.page.wait_for_selector(link)
    hand.click(link)
    hand.click(".timeline summary:has-text('bank-0 refused')")
    hand.sees("Traceback", ".timeline")
    hand.click(".timeline summary:text-is('Log')")
    hand.sees("charging order 0", ".timeline")
    said = yield {"ID": job}
    assert "Traceback" in said
    assert "charging order 0" in said


@task(
    "Retry the failures of one kind since an hour",
    "*Failures*, *1h*, *Retry …*, *Retry 3 jobs*",
    4,
    'leasework jobs retry --where "state:discarded error:{FINGERPRINT} since:1h" --yes',
)
def retry(shop: Shop, hand: Hand) -> Walk:
    jobs = shop.jobs("charge", "payments", "discarded", 3, max_attempts=1)
    attempts = "select count(*) from leasework.attempt where job_id = any(%s)"
    failures_of_an_hour(hand)
    hand.click("a:has-text('Retry …')", "ConnectionError")
    hand.click("button:has-text('Retry')")
    hand.sees("queued to run now")
    until(lambda: shop.sql(attempts, jobs) == [(6,)], 60, "each job to fail again")
    for job in jobs:
        shop.wait_state(job, "discarded")
    said = yield {"FINGERPRINT": shop.fingerprint("ConnectionError")}
    assert "queued to run now" in said
    until(lambda: shop.sql(attempts, jobs) == [(9,)], 60, "each job to fail again")


@task(
    "Discard the jobs that fail for one reason",
    "*Failures*, *1h*, *Discard …*, *Discard 3 jobs*",
    4,
    'leasework jobs discard --where "state:retryable error:{FINGERPRINT} since:1h" --yes',
)
def discard(shop: Shop, hand: Hand) -> Walk:
    first = shop.jobs("label", "labels", "retryable", 3)
    failures_of_an_hour(hand)
    hand.click("a:has-text('Discard …')", "TimeoutError")
    hand.click("button:has-text('Discard')")
    hand.sees("3 jobs discarded")
    assert {shop.state(job) for job in first} == {"discarded"}
    second = shop.jobs("label", "labels", "retryable", 3)
    yield {"FINGERPRINT": shop.fingerprint("TimeoutError")}
    assert {shop.state(job) for job in second} == {"discarded"}


@task(
    "See which jobs of a schedule failed",
    "*Jobs*, the filter `schedule:stocktake state:discarded`, Enter",
    3,
    'leasework jobs --where "schedule:stocktake state:discarded"',
)
def of_a_schedule(shop: Shop, hand: Hand) -> Walk:
    shop.run("leasework schedules run stocktake")
    query = "select id from leasework.jobs where task_name = 'count' and state = 'discarded'"
    until(lambda: shop.sql(query), 60, "the stocktake to fail")
    [(job,)] = shop.sql(query)
    filters(hand, "schedule:stocktake state:discarded", job)
    said = yield {}
    assert str(job) in said


@task(
    "See how long the jobs of a task took in the last 7 days",
    "*Overview*, the task's *history*, *7d*",
    2,
    'leasework jobs --where "task:pack state:completed since:7d" --sort duration --json',
)
def durations(shop: Shop, hand: Hand) -> Walk:
    hand.page.locator("main section", has_text="Tasks, last hour").last.locator(
        "tr", has_text="pack"
    ).locator("a:text-is('history')").click()
    hand.sees("Task pack", "h1")
    hand.click(".chips a:text-is('7d')")
    hand.page.wait_for_selector(".chips a[aria-current]:text-is('7d')")
    hand.sees("Run time, p95")
    said = yield {}
    rows = json.loads(said)
    assert rows and all(row["started_at"] and row["completed_at"] for row in rows)


# -- what a person does ----------------------------------------------------------------------------
@task(
    "Pause a queue, with a reason",
    "*Queues*, the queue's *Reason*, *Pause*",
    3,
    'leasework queues pause {QUEUE} --reason "the courier is late"',
)
def pause_queue(shop: Shop, hand: Hand) -> Walk:
    query = "select 1 from leasework.pause where kind = 'queue' and name = 'courier'"
    hand.go("Queues")
    hand.write("[name=reason]", "the courier is late", "courier")
    hand.click("button:text-is('Pause')", "courier")
    hand.page.wait_for_selector("main tr:has-text('courier') button:text-is('Resume')")
    assert shop.sql(query)
    shop.run("leasework queues resume courier")
    yield {"QUEUE": "courier"}
    assert shop.sql(query)
    acted = (
        "select count(*) from leasework.events where fields ->> 'reason' = 'the courier is late'"
    )
    assert shop.sql(acted) == [(2,)]
    assert shop.run("leasework queues resume courier").returncode == 0
    assert not shop.sql(query)


@task(
    "Change how many jobs of a limit run at once",
    "*Limits*, the limit's *At once*, *Set*",
    3,
    "leasework limits set {LIMIT} --concurrency 2",
)
def change_limit(shop: Shop, hand: Hand) -> Walk:
    query = "select set_concurrency from leasework.limits where name = 'bank'"
    hand.go("Limits")
    hand.write("[name=concurrency]", "3", "bank")
    hand.click("button:text-is('Set')", "bank")
    hand.page.wait_for_selector("main tr:has-text('bank') .tag:text-is('3')")
    assert shop.sql(query) == [(3,)]
    yield {"LIMIT": "bank"}
    assert shop.sql(query) == [(2,)]


@task(
    "Run a schedule now",
    "*Schedules*, the schedule's *Run now*",
    2,
    "leasework schedules run {NAME}",
)
def run_schedule(shop: Shop, hand: Hand) -> Walk:
    query = "select count(*) from leasework.jobs where task_name = 'invoice'"
    hand.go("Schedules")
    hand.click("button:text-is('Run now')", "invoices")
    hand.sees("invoices is queued to run now")
    assert shop.sql(query) == [(1,)]
    yield {"NAME": "invoices"}
    assert shop.sql(query) == [(2,)]


@task(
    "Pause a schedule",
    "*Schedules*, the schedule's *Pause*",
    2,
    "leasework schedules pause {NAME}",
)
def pause_schedule(shop: Shop, hand: Hand) -> Walk:
    query = "select paused from leasework.schedule where name = 'newsletter'"
    hand.go("Schedules")
    hand.click("button:text-is('Pause')", "newsletter")
    hand.sees("newsletter of default is paused")
    assert shop.sql(query) == [(True,)]
    shop.run("leasework schedules resume newsletter")
    yield {"NAME": "newsletter"}
    assert shop.sql(query) == [(True,)]


@task(
    "Drain a node",
    "*Nodes*, the node's *Drain*",
    2,
    "leasework nodes drain {NODE} --wait",
)
def drain(shop: Shop, hand: Hand) -> Walk:
    (first, name), (second, other) = shop.second_worker(), shop.second_worker()
    hand.go("Nodes")
    hand.click("button:text-is('Drain')", name)
    until(lambda: not first.running, 90, "the first to exit")
    assert first.returncode == 0 and second.running
    yield {"NODE": other}
    until(lambda: not second.running, 90, "the second to exit")
    assert second.returncode == 0 and shop.worker.running


@task(
    "Silence a problem for an hour",
    "*Overview*, the problem's *Reason*, *Silence*",
    2,
    'leasework silence queue_unworked queue:{QUEUE} --for 1h --reason "a known delay"',
)
def silence(shop: Shop, hand: Hand) -> Walk:
    query = "select reason from leasework.silence where subject = 'queue:courier'"
    problem = f"main li:has-text({json.dumps(UNWORKED)})"
    hand.write(f"{problem} >> [name=reason]", "a strike")
    hand.click(f"{problem} >> button:text-is('Silence')")
    hand.page.wait_for_selector(f"{problem} >> button:text-is('End the silence')")
    assert shop.sql(query) == [("a strike",)]
    yield {"QUEUE": "courier"}
    assert shop.sql(query) == [("a known delay",)]


# -- the processes and the database ----------------------------------------------------------------
@task(
    "See who leads, and since when",
    "*Leaders*",
    1,
    "leasework leaders --terms",
)
def leader(shop: Shop, hand: Hand) -> Walk:
    query = "select holder, acquired_at from leasework.leaders where holder is not null"
    [(holder, since)] = shop.sql(query)
    hand.go("Leaders")
    hand.sees(holder, "h2 + p")
    row = hand.page.locator("main tr:has(td[data-label=From])").first
    assert holder in row.inner_text()
    assert f"{since:%H:%M:%S}" in row.locator("[data-label=From]").inner_text()
    said = yield {}
    assert holder in said
    assert f"{since:%H:%M:%S}" in said


@task(
    "See which session blocks others",
    "*Database*",
    1,
    "leasework status",
    status=1,
)
def blocks(shop: Shop, hand: Hand) -> Walk:
    with psycopg.connect(shop.dsn, application_name="forgotten-shell") as holder:
        holder.execute("lock table leasework.deadline in exclusive mode")
        pid = holder.info.backend_pid
        hand.sees(f"The session {pid}")
        hand.go("Database")
        assert str(pid) in hand.page.locator("main tr", has_text="forgotten-shell").inner_text()
        said = yield {}
        assert f"The session {pid}" in said


@task(
    "See who did what",
    "*Events*, *Operator actions*",
    2,
    "leasework events --kind person_acted",
)
def acts(shop: Shop, hand: Hand) -> Walk:
    shop.run("leasework schedules resume newsletter")
    hand.go("Events")
    hand.click("a:text-is('Operator actions')")
    hand.page.wait_for_url("**/events?kind=person_acted")
    row = hand.page.locator("main tr", has_text="newsletter").first.inner_text()
    assert "resume" in row and "who" in row
    said = yield {}
    assert "resume" in said and "newsletter" in said


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.walk.__name__)
def test_a_task_takes_few_clicks_or_one_command(shop: Shop, hand: Hand, task: Task):
    walk = task.walk(shop, hand)
    words = next(walk)
    assert hand.clicks == task.clicks <= MOST
    ran = shop.run(task.command.format(**words))
    assert ran.returncode == task.status, ran.stdout + ran.stderr
    with pytest.raises(StopIteration):
        walk.send(ran.stdout)


def test_the_page_lists_these_tasks():
    assert len(TASKS) == 20
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert table[1:] == [task.row for task in TASKS], "\n".join(task.row for task in TASKS)
