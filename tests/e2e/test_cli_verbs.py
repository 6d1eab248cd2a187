"""Every verb of the command line, on a database with data: it ends within a time limit, with the
right exit status and without a traceback."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import psycopg
import pytest

from leasework.cli.root import root
from tests.arch import tree
from tests.support import postgres as servers
from tests.support.procs import Process, Processes
from tests.support.wait import until

LIMIT_SECONDS = 60.0
"""Against a verb that never ends; each takes about a second."""

SHOP = """
import asyncio
from leasework import App, Backoff
app = App(name="shop")
app.limit("vendor", concurrency=2)

@app.every(seconds=3600, name="hourly")
@app.every(seconds=1, name="each-second")
@app.task(name="well")
async def well() -> int:
    return 1

@app.task(name="broken")
async def broken() -> None:
    raise LookupError("no address for this user")

@app.task(name="flaky", backoff=Backoff(base=3600, longest=3600))
async def flaky() -> None:
    raise TimeoutError("the API did not answer")

@app.task(name="long")
async def long() -> None:
    await asyncio.Event().wait()

@app.task(name="slow")
async def slow() -> None: ...
"""

STATES = {
    "available": {"task": "slow", "queue": "unwatched"},
    "scheduled": {"task": "well", "run_in": 3600},
    "running": {"task": "long"},
    "retryable": {"task": "flaky"},
    "completed": {"task": "well"},
    "discarded": {"task": "broken", "max_attempts": 1},
    "cancelled": {"task": "slow", "queue": "unwatched"},
    "quarantined": {"task": "slow", "queue": "unwatched"},
}


class Shop:
    """A database where a worker lives and leads, with a job in every state."""

    def __init__(self, dsn: str, procs: Processes) -> None:
        self.dsn, self.procs = dsn, procs
        self.jobs: dict[str, str] = {}

    def start(self, *arguments: str) -> Process:
        env = {"LEASEWORK_DSN": self.dsn, "NO_COLOR": "1", "COLUMNS": "120"}
        return self.procs.start("-m", "leasework", *arguments, env=env)

    def ends(self, arguments: tuple[str, ...], exits: int = 0) -> str:
        process = self.start(*arguments)
        assert process.wait(LIMIT_SECONDS) == exits, process.output
        assert exits == 0 or "Traceback" not in process.output, "an error is told in words"
        return process.output

    def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), params)
            return cursor.fetchall() if cursor.description else []

    def enqueue(self, request: dict[str, Any]) -> str:
        return str(self.sql("select (leasework.enqueue(%s)).id", json.dumps(request))[0][0])

    def open(self, folder: Path) -> None:
        (folder / "shop.py").write_text(SHOP)
        self.worker = self.start("worker", "shop:app", "--queue", "default=50")
        self.locker = self.start("lock", "the report", "--", "sleep", "3600")
        self.jobs = {state: self.enqueue(request) for state, request in STATES.items()}
        self.ends(("jobs", "cancel", self.jobs["cancelled"]))
        self.ends(("jobs", "discard", self.jobs["quarantined"]))
        self.sql("update leasework.job_done set state = 'quarantined' where id = %s",
                 self.jobs["quarantined"])  # fmt: skip
        for what in (self._states, self._ticks, self._lock):
            until(what, LIMIT_SECONDS, what.__name__)

    def _states(self) -> bool:
        found = {str(i): state for i, state in self.sql("select id, state from leasework.jobs")}
        return all(found[job] == state for state, job in self.jobs.items())

    def _ticks(self) -> bool:
        return len(self.sql("select 1 from leasework.ticks where job_id is not null")) > 1

    def _lock(self) -> bool:
        return bool(self.sql("select 1 from leasework.leader where name = 'lock:the report'"))

    @property
    def node(self) -> str:
        return str(self.sql("select worker_id from leasework.nodes where pid = %s",
                            self.worker.pid)[0][0])  # fmt: skip


@pytest.fixture(scope="module")
def shop(postgres: Any, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    with servers.database(postgres.dsn, template=template) as dsn, Processes(folder) as procs:
        made = Shop(dsn, procs)
        made.open(folder)
        yield made


def verbs(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """What can be called, as it is typed; a group only when it does something by itself."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield " ".join(path)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from verbs(found, (*path, name))


WELL = 0
# Arguments by verb, each with its exit status. "{running}" is the job in that state.
CALLS: dict[str, list[tuple[str, int]]] = {
    "deadlines": [("", WELL), ("--json --state breached", WELL), ("--unhandled", WELL)],
    "doctor": [("", 1), ("--json --role observer", 1)],
    "events": [("", WELL), ("--json --kind node_started", WELL), ("--limit 1", WELL)],
    "failures": [("", WELL), ("--json --since 7d", WELL), ("--since soon", 1)],
    "jobs": [
        ("", WELL),
        ("--state discarded --json", WELL),
        ("--where '-task:bro* since:1h' --sort duration", WELL),
        ("--queue default --where task:well", 2),
        ("--follow --all", 2),
    ],
    "jobs cancel": [("{scheduled} --reason enough", WELL), ("{completed}", 1)],
    "jobs family": [("{completed}", WELL)],
    "jobs requeue": [("{completed}", WELL)],
    "jobs signal": [("{running} go 7", WELL), ("{completed} go", 1), ("{running} go {{", 2)],
    "jobs steps": [("{completed}", WELL), ("{completed} --json", WELL)],
    "jobs discard": [("--where task:flaky --yes", WELL)],
    "jobs reprioritize": [
        ("--where task:none --priority -5", WELL),
        ("{completed} --priority 1", 1),
    ],
    "jobs retry": [
        ("{cancelled}", WELL),
        ("{discarded}", WELL),
        ("--where 'state:discarded task:none'", WELL),
    ],
    "jobs show": [(f"{{{state}}}", WELL) for state in STATES] + [("{running} --json", WELL)],
    "jobs stack": [("{running}", WELL)],
    "leaders": [("", WELL), ("--terms", WELL), ("--json", WELL)],
    "lock": [("another -- true", WELL), ("another -- false", 1), ("--fail 'the report' true", 1)],
    "limits": [("", WELL), ("--json", WELL)],
    "limits keys": [("vendor", WELL), ("nobody", 1)],
    "limits pause": [("vendor", WELL)],
    "limits reset": [("vendor", WELL)],
    "limits resume": [("vendor --key 7", WELL)],
    "limits set": [("vendor --concurrency 3", WELL), ("vendor", 2), ("vendor --rate 3", 2)],
    "locks": [("", WELL), ("--json", WELL)],
    "metrics": [("", WELL)],
    "metrics dashboard": [("", WELL)],
    "metrics rules": [("", WELL)],
    "nodes": [("", WELL), ("--json", WELL)],
    "nodes drain": [("nobody", 1)],
    "nodes resume": [("{node}", WELL)],
    "nodes seen": [("", WELL)],
    "nodes stop-claiming": [("{node}", WELL)],
    "queues": [("", WELL), ("--json", WELL)],
    "queues pause": [("unwatched --reason maintenance", WELL), ("--task slow", WELL)],
    "queues resume": [("unwatched", WELL)],
    "queues weight": [("default gold 3", WELL), ("default gold", WELL)],
    "schedules": [("", WELL), ("--json", WELL)],
    "silence": [
        ("no_leader --for 30min --reason maintenance", WELL),
        ("no_leader --for 0", WELL),
        ("no_leader", 1),
        ("no_lead --reason x", 1),
        ("no_leader --for soon --reason x", 1),
    ],
    "schedules pause": [("each-second", WELL)],
    "schedules remove": [("hourly", WELL), ("no-such", 1)],
    "schedules resume": [("each-second", WELL)],
    "schedules run": [("each-second", WELL)],
    "schedules ticks": [("", WELL), ("each-second --json --limit 2", WELL)],
    "schema apply": [("", WELL)],
    "schema lift-tokens": [("", WELL)],
    "schema sql": [("", WELL), ("--roles", WELL)],
    "schema verify": [("", WELL), ("--json", WELL)],
    "sim": [("--seeds 3 --processes 1", WELL)],
    "status": [("--app nobody", 1), ("--json --app nobody", 1)],
}
# Those that go on until they are told to end, and what they say first.
SERVING = {
    "jobs --follow --where state:discarded": "no address for this user",
    "web --port 0": r"http://127.0.0.1:\d+",
    "worker shop:app --queue default=5": "node_started",
}
# Those that bring a schema and processes of their own have a file of their own.
ELSEWHERE = {
    "bench": "e2e/test_cli_bench.py",
    "chaos": "chaos/test_campaign.py",
    "demo": "e2e/test_demo.py",
    "mcp": "pg/test_agents.py",
}


def test_every_verb_has_its_calls():
    called = {*CALLS, *ELSEWHERE, *(call.split()[0] for call in SERVING)}
    assert called == set(verbs(root)), "add a call of the new verb to CALLS, with its exit status"
    assert all((tree.TESTS / file).exists() for file in ELSEWHERE.values())


@pytest.mark.parametrize("verb", sorted(CALLS))
def test_a_verb_ends_as_it_should_on_a_database_with_data(
    verb: str, shop: Shop, pytestconfig: pytest.Config
):
    now = datetime.now(UTC)
    start, end = now - timedelta(hours=1), now - timedelta(minutes=59, seconds=58)
    times = {"start": start.isoformat(), "end": end.isoformat()}
    known = {**shop.jobs, **times, "node": shop.node}
    on_another_python = pytestconfig.option.markexpr == "everywhere"
    for arguments, exits in CALLS[verb][: 1 if on_another_python else None]:
        shop.ends((*verb.split(), *shlex.split(arguments.format(**known))), exits)


@pytest.mark.parametrize("call", sorted(SERVING))
def test_a_verb_that_serves_ends_when_it_is_told_to(call: str, shop: Shop):
    process = shop.start(*call.split())
    process.wait_for(SERVING[call], LIMIT_SECONDS)
    process.kill(signal.SIGTERM)
    assert process.wait(LIMIT_SECONDS) in (0, -signal.SIGTERM), process.output
