"""Scenes: tests that mostly wait, played at the same time, each on a database of its own.

A test marked with :func:`together` is started with all the others of its module that were
selected; its own result is what it waits for and reports.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from leasework.config import Settings, Timings
from leasework.pg.schema import migrate
from tests.support import postgres as servers
from tests.support.procs import ROOT, Process, Processes
from tests.support.wait import BUSY_SECONDS, until

RECOVER_WITHIN = 9.0
TIMES = Timings.derive(RECOVER_WITHIN)
T = TIMES.lease
SLACK = BUSY_SECONDS
WORKER = ROOT / "tests" / "e2e" / "fault_apps" / "worker.py"

Line = dict[str, Any]


def boot_now() -> float:
    """The clock of the history."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Scene:
    """A database with the schema, worker processes, their history, and what tests ask of them."""

    def __init__(self, server: Any, loop: str = "asyncio") -> None:
        self.stack = ExitStack()
        self.server = server
        self.loop = loop
        self.folder = Path(tempfile.mkdtemp(prefix="lh-scene-"))
        self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.use(self.stack.enter_context(servers.database(server.dsn)))
        self.procs = self.stack.enter_context(Processes(self.folder))

    def use(self, dsn: str) -> None:
        """The database on which this scene plays."""
        self.dsn = dsn
        asyncio.run(migrate.apply(Settings(dsn=dsn)))
        self._connection: psycopg.Connection[Any] | None = None

    def bare_database(self) -> str:
        """The DSN of another, empty database on the server."""
        return self.stack.enter_context(servers.database(self.server.dsn))

    def own_server(self, settings: dict[str, str] | None = None) -> Any:
        """A server for this scene alone, to do harm to, or with settings of its own."""
        self.server = self.stack.enter_context(servers.server(settings=settings))
        self.use(self.stack.enter_context(servers.database(self.server.dsn)))
        return self.server

    def close(self) -> None:
        if self._connection:
            self._connection.close()
        self.stack.close()

    # -- processes -------------------------------------------------------------------------------
    def worker(self, name: str, *, dsn: str = "", wait: bool = True, **env: object) -> Process:
        """One worker; ``env`` as in worker.py."""
        settings = {
            "LEASEWORK_DSN": dsn or self.dsn,
            "LEASEWORK_RECOVER_WITHIN": str(RECOVER_WITHIN),
            "HISTORY": str(self.folder / "history"),
            "LOOP": self.loop,
            **{key.upper(): str(value) for key, value in env.items()},
        }
        process = self.procs.start(str(WORKER), name=name, env=settings)
        if wait:
            process.wait_for("^up$", 30)
        return process

    def leader(self) -> int | None:
        """The pid of the process that leads, by the row."""
        found = self.sql(
            "select n.pid from leasework.leader l join leasework.node n on n.id = l.node"
        )
        return found[0][0] if found else None

    def wait_for_leader(self, *processes: Process, timeout: float = 30) -> Process:
        """The process that leads, once one of ``processes`` does."""
        by_pid = {p.pid: p for p in processes}
        pid = until(
            lambda: found if (found := self.leader()) in by_pid else None, timeout, "a leader"
        )
        return by_pid[pid]

    def node_ids(self, process: Process) -> list[str]:
        """The identities that the process has a row of, now."""
        return [str(i) for (i,) in self.sql(
            "select id from leasework.node where pid = %s", process.pid)]  # fmt: skip

    # -- the database ----------------------------------------------------------------------------
    def sql(self, text: str, *params: Any) -> list[Any]:
        """One statement; it is repeated when the connection was broken by what the scene does."""
        for attempt in range(50):
            try:
                if self._connection is None:
                    self._connection = psycopg.connect(self.dsn, autocommit=True)
                    self._connection.prepare_threshold = None
                cursor = self._connection.execute(text.encode(), params or None)
                return cursor.fetchall() if cursor.description else []
            except psycopg.OperationalError:
                if attempt == 49:
                    raise
                with suppress(psycopg.Error):
                    if self._connection:
                        self._connection.close()
                self._connection = None
                time.sleep(0.1)
        return []

    def one(self, text: str, *params: Any) -> Any:
        [[value]] = self.sql(text, *params)
        return value

    def enqueue(self, task: str, count: int = 1, *, options: Line | None = None, **payload: Any):
        """``count`` jobs; their ids."""
        job = {"task": task, "payload": payload, **(options or {})}
        rows = self.sql("select id from leasework.enqueue(%s::jsonb)", json.dumps([job] * count))
        return [str(job_id) for (job_id,) in rows]

    def states(self, jobs: list[str]) -> dict[str, int]:
        rows = self.sql(
            "select coalesce(j.state, 'lost'), count(*) from unnest(%s::uuid[]) as a (id)"
            " left join leasework.jobs j using (id) group by 1",
            jobs,
        )
        return dict(rows)

    def wait_done(self, jobs: list[str], timeout: float) -> None:
        """Until each of them has completed: then none is lost."""
        until(
            lambda: (states := self.states(jobs)) == {"completed": len(jobs)} or _unless(states),
            timeout,
            f"{len(jobs)} jobs to complete",
            every=0.1,
        )

    def events(self, kind: str) -> list[Line]:
        """The fields of the events of a kind, oldest first, with the worker's pid."""
        rows = self.sql(
            "select fields, worker_id from leasework.events where kind = %s order by id", kind
        )
        return [{**fields, "pid": int(worker.split(":")[1])} for fields, worker in rows]

    def wait_event(self, kind: str, timeout: float = 15, **fields: Any) -> Line:
        def found() -> Line | None:
            for event in self.events(kind):
                if all(event.get(key) == value for key, value in fields.items()):
                    return event
            return None

        event = until(found, timeout, f"event {kind} {fields}", every=0.1)
        assert event
        return event

    def wait_refused(self, run: Line) -> None:
        """Until the process of that run has told that its outcome changed nothing."""

        def told() -> bool:
            events = self.events("ack_refused") + self.events("job_lost")
            return any((e["job"], e["pid"]) == (run["job"], run["pid"]) for e in events)

        until(told, 15, "an event for the late outcome", every=0.1)

    # -- the history -----------------------------------------------------------------------------
    def history(self, kind: str | None = None, **fields: Any) -> list[Line]:
        """What handlers did, in the order in which it was written."""
        path = self.folder / "history"
        written = path.read_text() if path.exists() else ""
        # what comes after the last end of a line is being written just now
        lines = [json.loads(text) for text in written.split("\n")[:-1]]
        return [
            line
            for line in lines
            if kind in (None, line["kind"])
            and all(line.get(key) == value for key, value in fields.items())
        ]

    def wait_history(self, kind: str, count: int = 1, timeout: float = 15, **fields: Any):
        return until(
            lambda: lines if len(lines := self.history(kind, **fields)) >= count else None,
            timeout,
            f"{count} of {kind} {fields}",
            every=0.05,
        )

    def wait_until_clock(self, moment: float) -> None:
        """Pauses last as long as they last: there is no event to wait for."""
        until(lambda: boot_now() >= moment, moment - boot_now() + 10, "the end of the pause")

    # -- what must hold --------------------------------------------------------------------------
    def check_ticks(self) -> int:
        """Each second between the first and the last tick was fired once, and ran; how many."""
        [(moments, jobs)] = self.sql(
            "select array(select extract(epoch from fire_at)::int from leasework.tick"
            " where state = 'fired' order by 1),"
            " (select count(*) from leasework.jobs where schedule is not null)"
        )
        assert moments, "no tick was fired"
        assert moments == list(range(moments[0], moments[-1] + 1)), "a tick is missing"
        assert not self.sql("select 1 from leasework.tick where state <> 'fired'")
        assert jobs == len(moments), "a tick is more than one job"
        return len(moments)

    def check_overlaps(self) -> None:
        """No job was begun anew while a run of it went on in a process that could know."""
        for line in self.history("start"):
            later = [
                other["at"]
                for other in self.history("start", job=line["job"])
                if other["token"] > line["token"]
            ]
            ends = [
                other["at"]
                for other in self.history(job=line["job"], token=line["token"])
                if other["kind"] in ("end", "cancelled")
            ]
            if later and ends:
                assert ends[0] <= min(later), f"job {line['job']} ran twice at once"


def _unless(states: dict[str, int]) -> bool:
    """False, with the states for the message of the wait."""
    if set(states) & {"lost", "discarded", "quarantined", "cancelled"}:
        raise AssertionError(f"jobs ended otherwise: {states}")
    return False


# -- played together -----------------------------------------------------------------------------
Act = Callable[[Scene], None]


class Batch:
    """All selected scenes of one module, each in a thread."""

    def __init__(self, server: Any, items: list[Any]) -> None:
        self._errors: dict[str, BaseException] = {}
        self._threads = {
            item.name: threading.Thread(target=self._play, args=(server, item), daemon=True)
            for item in items
        }
        for thread in self._threads.values():
            thread.start()

    def _play(self, server: Any, item: Any) -> None:
        scene = None
        given = item.callspec.params if hasattr(item, "callspec") else {}
        try:
            scene = Scene(server, **given)
            item.function.act(scene)
        except BaseException as error:
            if scene:
                error.add_note(scene.procs.report())
            self._errors[item.name] = error
        finally:
            if scene:
                scene.close()

    def result(self, name: str) -> None:
        self._threads[name].join()
        if name in self._errors:
            raise self._errors[name]

    def close(self) -> None:
        for thread in self._threads.values():
            thread.join()


def together(act: Act) -> Callable[[Any], None]:
    """Make a test of a scene."""

    def run(request: pytest.FixtureRequest) -> None:
        request.getfixturevalue("batch").result(request.node.name)

    return _as(act, run)


def on_every_loop(act: Act) -> Callable[[Any, str], None]:
    """Make two tests of a scene: its workers run on asyncio's event loop, and on uvloop."""

    def run(request: pytest.FixtureRequest, loop: str) -> None:
        request.getfixturevalue("batch").result(request.node.name)

    return pytest.mark.parametrize("loop", ["asyncio", "uvloop"])(_as(act, run))


def _as(act: Act, run: Any) -> Any:
    run.__name__, run.__doc__, run.__module__ = act.__name__, act.__doc__, act.__module__
    run.act = act
    return run


@pytest.fixture(scope="module")
def batch(request: pytest.FixtureRequest, postgres: Any) -> Iterator[Batch]:
    items = [
        item
        for item in request.session.items
        if getattr(item, "module", None) is request.module and hasattr(item.function, "act")
    ]
    started = Batch(postgres, items)
    yield started
    started.close()


def children(pid: int) -> list[int]:
    """The processes that ``pid`` started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
