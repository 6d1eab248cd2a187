"""Starting the test applications as real services, and looking at their database."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
from psycopg.types.json import Jsonb

from leasework.config import Settings, Timings
from leasework.pg.schema import migrate
from tests.e2e.apps.journal import Entry, entries
from tests.support.procs import Process, Processes
from tests.support.wait import NeverHappened, until

WEB = "tests.e2e.apps.web:asgi"
START_SECONDS = 40.0

OTHER_CONNECTIONS = (
    "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
)

POOLED = bool(os.environ.get("LEASEWORK_TEST_POOLER"))
RECOVER_WITHIN = 9.0
TIMINGS = Timings.derive(RECOVER_WITHIN)
AT_ONCE = TIMINGS.lease - TIMINGS.renew
"""Others act on a certificate or a resignation before a lease can end. Without another load it
takes less than 1 s, or one poll where LISTEN cannot work."""


def measured(what: str, seconds: float, limit: float) -> None:
    """Print a figure (``pytest -s`` shows it) and check its bound."""
    print(f"\nMEASURED {what}: {seconds:.3f} s (at most {limit:g})")
    assert seconds <= limit, f"{what} took {seconds:.3f} s, at most {limit:g} were promised"


class Database:
    """A database with leasework's schema, as an onlooker sees it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        asyncio.run(migrate.apply(Settings.load({"dsn": dsn}, {})))
        self._connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)

    def rows(self, query: Any, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()

    def close(self) -> None:
        self._connection.close()

    def leader(self, name: str = "default") -> int | None:
        """The pid of the process that leads, None while nobody does."""
        found = self.rows(
            "select n.pid from leasework.leader l join leasework.node n on n.id = l.node "
            "where l.name = %s",
            name,
        )
        return found[0][0] if found else None

    def nodes(self, name: str = "default") -> list[int]:
        """The pids of an application's nodes."""
        return [pid for (pid,) in self.rows("select pid from leasework.node where app = %s", name)]

    def wait_for_nodes(self, count: int, name: str = "default") -> int:
        """Until so many have joined and one of them leads; its pid."""

        def leads() -> int | None:
            return self.leader(name) if len(self.nodes(name)) == count else None

        return until(leads, START_SECONDS, f"{count} nodes of {name} and a leader") or 0

    def next_term(self, after: float, name: str = "default") -> float:
        """When the first leadership after that moment was acquired; both since the epoch."""

        def acquired() -> list[tuple[Any, ...]]:
            return self.rows(
                "select extract(epoch from min(acquired_at))::float8 from leasework.term "
                "where name = %s and acquired_at > to_timestamp(%s) having count(*) > 0",
                name,
                after,
            )

        return float(until(acquired, 20, f"a new leader of {name}")[0][0])

    def enqueue(self, task: str, count: int = 1, queue: str = "work", **payload: Any) -> list[str]:
        """The ids of new jobs, through the entry point for SQL."""
        job = {"task": task, "queue": queue, "payload": payload}
        made = self.rows("select (leasework.enqueue(%s)).id", Jsonb([job] * count))
        return [str(job_id) for (job_id,) in made]

    def finished(self, jobs: list[str]) -> bool:
        """Has each of them completed?"""
        found = self.rows("select state from leasework.jobs where id = any(%s::uuid[])", jobs)
        return [state for (state,) in found] == ["completed"] * len(jobs)

    def connections(self) -> int:
        """How many there are beside this one."""
        return len(self.rows(f"select 1 {OTHER_CONNECTIONS}"))

    def break_connections(self) -> int:
        """All but this one; how many."""
        return len(self.rows(f"select pg_terminate_backend(pid) {OTHER_CONNECTIONS}"))

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The fields of the events of one kind."""
        found = self.rows("select fields from leasework.events where kind = %s order by id", kind)
        return [fields for (fields,) in found]


class Service:
    """One deployment: a web server with its workers, on a unix socket of its own."""

    def __init__(
        self,
        procs: Processes,
        dsn: str,
        name: str,
        release: str,
        env: Mapping[str, str],
        web: str = WEB,
    ) -> None:
        self._web = web
        self._procs = procs
        self.name = name
        self.journal = procs.folder / f"{name}.journal"
        self._label = f"{name}-{release}" if release else name
        self.socket = procs.folder / f"{self._label}.sock"
        self._env = {
            "LEASEWORK_DSN": dsn,
            "LEASEWORK_NAME": name,
            "LEASEWORK_RELEASE": release,
            "LEASEWORK_RECOVER_WITHIN": str(RECOVER_WITHIN),
            "JOURNAL": str(self.journal),
            **env,
        }
        self.process: Process

    def gunicorn(self, workers: int, *options: str, hooks: str = "") -> Service:
        """``hooks``: the text of its gunicorn.conf.py."""
        kind = [] if "worker_class" in hooks else ["-k", "uvicorn_worker.UvicornWorker"]
        config = self._procs.folder / f"{self._label}.conf.py"
        config.write_text(hooks)
        command = ["-m", "gunicorn", "-c", str(config), *kind]
        command += ["-w", str(workers), "-b", f"unix:{self.socket}"]
        command += ["--no-control-socket", *options, self._web]
        return self._start(command)

    def uvicorn(self, workers: int, *options: str) -> Service:
        command = ["-m", "uvicorn", "--workers", str(workers), "--uds", str(self.socket)]
        return self._start([*command, *options, self._web])

    def worker(self, *options: str) -> Service:
        """The same application without a web server."""
        return self._start(["-m", "leasework", "worker", WEB.replace("asgi", "app"), *options])

    def _start(self, command: list[str]) -> Service:
        self.process = self._procs.run([sys.executable, *command], name=self._label, env=self._env)
        return self

    def get(self, path: str = "/") -> dict[str, Any]:
        """What a web page says."""
        transport = httpx.HTTPTransport(uds=str(self.socket))
        with httpx.Client(transport=transport, base_url="http://service") as client:
            answer: dict[str, Any] = client.get(path).raise_for_status().json()
            return answer

    def noted(self, what: str) -> list[Entry]:
        return entries(self.journal, what)


def check_each_second(journal: Path, first: float, seconds: int, killed: int = 0) -> None:
    """Each second from ``first`` on ran exactly once; waits for the last one and the next. What
    the process ``killed`` held may have run again, as a later attempt of the same job."""
    due = {first + n for n in range(seconds + 1)}

    def first_runs() -> Counter[float]:
        return Counter(float(e.key) for e in entries(journal, "tick") if e.attempt == 1)

    with suppress(NeverHappened):
        until(lambda: due | {max(due) + 1} <= first_runs().keys(), seconds + 15.0)
    ran = first_runs()
    held = {float(e.key) for e in entries(journal, "tick") if e.attempt == 2}
    missing = sorted(due - ran.keys() - held)
    assert not missing, f"{len(missing)} of {len(due)} due seconds did not run: {missing}"
    twice = sorted(second for second, times in ran.items() if times > 1)
    assert not twice, f"{len(twice)} seconds ran more than once: {twice}"
    owners = {float(e.key): e.pid for e in entries(journal, "tick") if e.attempt == 1}
    again = {second for second in held if owners.get(second, killed) != killed}
    assert not again, f"ran again though its process was not killed: {again}"
