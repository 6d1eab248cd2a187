"""The troubles: what is set up, what is done, and which sentence must be said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from leasework_lab.chaos.database import Server

from leasework.config import BLOCKED_SECONDS, HANG_SECONDS
from tests.detection.alerts import Alerts
from tests.support import postgres as servers
from tests.support.procs import Process, Processes
from tests.support.relay import Relay
from tests.support.wait import stall, until

APP = "tests.detection.app:app"
PIN_SECONDS = OVERDUE_SECONDS = 3.0
_OTHER_VERSION = """
import leasework.app.core
leasework.app.core.VERSION = "0.9.9"
from leasework.cli import main
main()
"""


@dataclass
class Stage:
    """A fresh database with a dashboard; all of it ends with ``stack``."""

    dsn: str
    procs: Processes
    stack: ExitStack
    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    disks: list[Path] = field(default_factory=list)
    """Mounted; the end of the server unmounts them."""
    url: str = ""
    alerts: Alerts = field(init=False)

    def prepare(self) -> None:
        self.env = {**os.environ, "LEASEWORK_DSN": self.dsn, **self.env}
        applied = self.procs.start(
            "-m", "leasework", "schema", "apply", name="schema", env=self.env
        )
        assert applied.wait(60) == 0, applied.tail()
        web = self.procs.start("-m", "leasework", "web", "--port", "0", name="web", env=self.env)
        self.url = web.wait_for(r"dashboard is at (http://\S+/)", 60)[1]
        self.alerts = Alerts(self.procs, self.folder, self.url)

    def worker(self, *options: str, dsn: str = "", code: str | None = None) -> Process:
        """Returns when it takes part."""
        env = {**self.env, "LEASEWORK_DSN": dsn or self.dsn}
        name = f"worker{len(self.procs.all)}"
        start = ["worker", APP, *options] if code else ["-m", "leasework", "worker", APP, *options]
        process = self.procs.start(*start, code=code, name=name, env=env)
        process.wait_for("node_started", 60)
        return process

    def leader(self) -> Process:
        """The worker that leads."""
        process = self.worker()
        process.wait_for("lease_acquired", 60)
        return process

    def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query, params or None)
            return cursor.fetchall() if cursor.description else []

    def enqueue(self, task: str, **options: Any) -> None:
        self.sql("select id from leasework.enqueue(%s)", json.dumps({"task": task, **options}))

    def runs(self, task: str) -> None:
        """Until a job of this task runs."""
        self.enqueue(task)
        query = "select 1 from leasework.jobs where task_name = %s and state = 'running'"
        until(lambda: self.sql(query, task), 60, f"{task} to run")


Inject = Callable[[], float]
"""Does the harm; the moment on CLOCK_MONOTONIC from which it counts."""


@dataclass(frozen=True)
class Scene:
    title: str
    """What happens, for people."""
    kind: str
    words: str
    """What the sentence must hold."""
    play: Callable[[Stage], Inject]
    env: dict[str, str] = field(default_factory=dict)
    later: str = ""
    """The kind that takes its place when it lasts: who looks rarely sees that one."""
    clock: bool = False
    """It wants a server whose clock can be set."""
    own: bool = False
    """It wants a server of its own."""

    @property
    def kinds(self) -> list[str]:
        return [kind for kind in (self.kind, self.later) if kind]


def now() -> float:
    return time.monotonic()


def _at_once(act: Callable[[], object]) -> Inject:
    def inject() -> float:
        started = now()
        act()
        return started

    return inject


def leader_killed(stage: Stage) -> Inject:
    return _at_once(stage.leader().kill)


def leader_frozen(stage: Stage) -> Inject:
    leader = stage.leader()
    stage.worker()
    return _at_once(leader.stop)


def lock_lost(stage: Stage) -> Inject:
    stage.leader()
    stage.runs("holds_lock")
    query = (
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where application_name like 'leasework lock%%' and datname = current_database()"
    )
    held = "select 1 from leasework.locks where name = 'engine' and granted"
    until(lambda: stage.sql(held), 60, "the lock to be held")
    return _at_once(lambda: stage.sql(query))


def renewals_failing(stage: Stage) -> Inject:
    stage.leader()
    link = stage.stack.enter_context(Relay(stage.dsn))
    stage.worker(dsn=link.dsn)
    return _at_once(link.silence)


def worker_frozen(stage: Stage) -> Inject:
    stage.leader()
    busy = stage.worker("--queue", "default=50")
    stage.runs("long")
    return _at_once(busy.stop)


def queue_unworked(stage: Stage) -> Inject:
    stage.leader()
    return _at_once(lambda: stage.enqueue("quick", queue="reports"))


def unknown_task(stage: Stage) -> Inject:
    stage.leader()
    return _at_once(lambda: stage.enqueue("nowhere"))


def poison_job(stage: Stage) -> Inject:
    supervisor = stage.procs.start(
        "-m", "leasework", "worker", APP, "--processes", "2", name="supervisor", env=stage.env
    )
    supervisor.wait_for("lease_acquired", 60)
    return _at_once(lambda: stage.enqueue("poison"))


def tick_missed(stage: Stage) -> Inject:
    leader = stage.leader()
    fired = "select 1 from leasework.ticks where state = 'fired'"
    until(lambda: stage.sql(fired), 60, "the first tick")

    def inject() -> float:
        leader.stop()
        started = now()
        stall(4)  # shorter than its lease: it goes on by itself, too late for some moments
        leader.resume()
        return started

    return inject


def deadline_breached(stage: Stage) -> Inject:
    stage.leader()

    def inject() -> float:
        due = now() + 2.0
        promise = {"since": "enqueued", "seconds": 2.0, "name": "report", "on_breach": "page"}
        stage.enqueue("quick", run_in=60, deadline=promise)
        return due

    return inject


def xmin_pinned(stage: Stage) -> Inject:
    stage.leader()

    def inject() -> float:
        connection = stage.stack.enter_context(psycopg.connect(stage.dsn))
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select 1 from leasework.node")
        return now() + PIN_SECONDS  # from here on it is too old

    return inject


def clock_stepped(stage: Stage) -> Inject:
    stage.leader()
    clock = stage.env["DETECTION_CLOCK"]

    def step() -> None:
        path = Path(clock)
        new = path.with_suffix(".new")
        new.write_text("+3600.000s\n")
        new.chmod(0o644)
        new.rename(path)

    # two renewals with the clock as it was: a step is a difference
    until(lambda: stage.sql("select seq > 3 from leasework.nodes")[0][0], 60, "renewals")
    return _at_once(step)


def notifications_lost(stage: Stage) -> Inject:
    link = stage.stack.enter_context(Relay(stage.dsn, deaf=True))

    def inject() -> float:
        stage.worker(dsn=link.dsn)
        return now()

    return inject


def schema_behind(stage: Stage) -> Inject:
    stage.leader()
    return _at_once(lambda: stage.sql("update leasework.migration set number = number - 2"))


def two_versions(stage: Stage) -> Inject:
    stage.leader()

    def inject() -> float:
        stage.worker(code=_OTHER_VERSION)
        return now()

    return inject


def attempts_fail(stage: Stage) -> Inject:
    stage.leader()
    return _at_once(lambda: [stage.enqueue("flaky") for _ in range(10)])


def jobs_discarded(stage: Stage) -> Inject:
    stage.leader()
    return _at_once(lambda: stage.enqueue("broken", max_attempts=1))


def crash_loop(stage: Stage) -> Inject:
    supervisor = stage.procs.start(
        "-m", "leasework", "worker", APP, "--processes", "3", name="supervisor", env=stage.env
    )
    supervisor.wait_for("lease_acquired", 60)
    pids = "select pid from leasework.nodes"
    until(lambda: len(stage.sql(pids)) == 3, 60, "three workers")
    return _at_once(lambda: [os.kill(pid, signal.SIGKILL) for (pid,) in stage.sql(pids)])


def queue_overdue(stage: Stage) -> Inject:
    stage.leader()
    stage.worker("--queue", "reports=1")
    stage.enqueue("long", queue="reports")
    running = "select 1 from leasework.jobs where state = 'running'"
    until(lambda: stage.sql(running), 60, "the slot to be taken")

    def inject() -> float:
        stage.enqueue("quick", queue="reports")
        return now() + OVERDUE_SECONDS  # from here on it has waited too long

    return inject


def schedule_failing(stage: Stage) -> Inject:
    def inject() -> float:
        stage.worker()
        return now()

    return inject


HISTORY = """
insert into leasework.history (at, queue, task_name, completed, run)
select date_trunc('minute', now()) - interval '1 min' * n, 'default', %s, 100,
       jsonb_build_object(%s::text, 100)
from generate_series(%s::integer, %s::integer) n
"""
"""A task, the class of its durations, and the minutes ago, from and to."""


def slots_hang(stage: Stage) -> Inject:
    stage.leader()
    stage.sql(HISTORY, "long", "10", 20, 60)

    def inject() -> float:
        for _ in range(3):
            stage.enqueue("long")
        return now() + HANG_SECONDS

    return inject


def task_slow(stage: Stage) -> Inject:
    stage.leader()
    stage.sql(HISTORY, "quick", "10", 20, 60)
    return _at_once(lambda: stage.sql(HISTORY, "quick", "60", 1, 2))


def _in_transaction(stage: Stage, statement: str) -> Inject:
    stage.leader()
    holder = stage.stack.enter_context(psycopg.connect(stage.dsn))

    def inject() -> float:
        holder.execute(statement)  # type: ignore[arg-type]
        return now() + BLOCKED_SECONDS

    return inject


def table_locked(stage: Stage) -> Inject:
    return _in_transaction(stage, "lock table leasework.job")


def session_blocks(stage: Stage) -> Inject:
    return _in_transaction(stage, "update leasework.leader set seq = seq")


MANY = """
select leasework.enqueue(jsonb_build_object('task', 'well', 'run_in', 31536000))
from generate_series(1, %s)
"""


def disk_full(stage: Stage) -> Inject:
    """The disk of the jobs' table, of one megabyte, is filled with jobs of next year."""
    if os.geteuid() != 0:
        raise LookupError("disk_full mounts a small disk, which needs root: name the other scenes")
    folder = Path(tempfile.mkdtemp(prefix="lw-disk-"))  # which the server's user may enter
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    stage.disks.append(folder)
    [(data,)] = stage.sql("show data_directory")
    owner = os.stat(data)
    os.chown(folder, owner.st_uid, owner.st_gid)
    stage.sql(f"create tablespace tight location '{folder}'")
    stage.sql("alter table leasework.job set tablespace tight")
    leader = stage.leader()

    def inject() -> float:
        while "No space left on device" not in leader.output:  # the places of ended jobs, too
            for jobs in (100, 1):
                with pytest.raises(psycopg.errors.DiskFull):
                    for _ in range(1000):
                        stage.sql(MANY, jobs)
        return now()

    return inject


def few_connections(stage: Stage) -> Inject:
    stage.leader()

    def inject() -> float:
        [(name, used)] = stage.sql(
            "select current_database(), count(*) from pg_stat_activity"
            " where datname = current_database()"
        )
        # the tests' login is a superuser, whom the limit does not stop
        stage.sql(f'alter database "{name}" connection limit {used}')
        return now()

    return inject


SCENES: dict[str, Scene] = {
    "leader_killed": Scene(
        "the leader is killed, and there is no successor",
        "no_live_node", "No live node: no schedules fire", leader_killed,
    ),
    "leader_frozen": Scene(
        "the leader freezes (SIGSTOP)", "renewal_late", "does not renew its lease|died",
        leader_frozen, later="node_died",
    ),
    "lock_lost": Scene(
        "the session that holds an advisory lock is ended",
        "lock_lost", "lost the lock '?engine", lock_lost,
    ),
    "renewals_failing": Scene(
        "the database no longer answers a node",
        "renewal_late", "does not renew its lease|died", renewals_failing, later="node_died",
    ),
    "worker_frozen": Scene(
        "a worker freezes with a job (SIGSTOP)",
        "renewal_late", "does not renew its lease|died", worker_frozen, later="node_died",
    ),
    "queue_unworked": Scene(
        "a queue has jobs, and no worker runs them",
        "queue_unworked", "Queue 'reports' has available jobs, but no live node", queue_unworked,
    ),
    "unknown_task": Scene(
        "no worker knows the task of a job",
        "task_unknown", "no live node knows the task: nowhere", unknown_task,
    ),
    "poison_job": Scene(
        "a job kills every worker that runs it",
        "job_quarantined", "in quarantine (poison): a worker died", poison_job,
    ),
    "tick_missed": Scene(
        "the leader is stopped for 4 s, and moments of a schedule pass",
        "tick_missed", "Schedule '?each-second'? missed its moments", tick_missed,
        {"DETECTION_SCHEDULE": "1"},
    ),
    "deadline_breached": Scene(
        "a deadline passes", "deadline_breached", "The deadline '?report'? was missed",
        deadline_breached,
    ),
    "xmin_pinned": Scene(
        "a transaction keeps dead rows for longer than the limit",
        "xmin_pinned", "vacuum cannot remove dead rows", xmin_pinned,
        {"LEASEWORK_PIN_SECONDS": str(PIN_SECONDS)},
    ),
    "clock_stepped": Scene(
        "the database's clock is set forward by an hour",
        "clock_jumped", "clock was moved forward by (1 h|59 min)", clock_stepped, clock=True,
    ),
    "notifications_lost": Scene(
        "a worker's connection delivers no notifications",
        "wakeups_lost", "gets no wake-ups and polls instead: LISTEN", notifications_lost,
    ),
    "schema_behind": Scene(
        "the schema lacks a migration", "schema_behind", "needs 1", schema_behind
    ),
    "two_versions": Scene(
        "a worker of another version joins",
        "versions_differ", "different versions of leasework", two_versions,
    ),
    "attempts_fail": Scene(
        "attempts of a task fail and are retried",
        "jobs_failing", "Attempts of the task '?flaky'? fail .* ConnectionRefusedError",
        attempts_fail,
    ),
    "jobs_discarded": Scene(
        "a job is discarded", "jobs_discarded",
        "Jobs of the task '?broken'? are discarded: .* ValueError", jobs_discarded,
    ),
    "crash_loop": Scene(
        "three workers of a supervisor are killed", "crash_loop", "keep crashing: 3 died",
        crash_loop,
    ),
    "queue_overdue": Scene(
        "a job finds no free slot for longer than the limit",
        "queue_overdue", "Queue '?reports'? is overdue", queue_overdue,
        {"LEASEWORK_OVERDUE_SECONDS": f"{OVERDUE_SECONDS:g}"},
    ),
    "schedule_failing": Scene(
        "the jobs of a schedule fail", "schedule_failing",
        "Schedule '?report'? .* fails: its last job was discarded .* ValueError", schedule_failing,
        {"DETECTION_FAILING": "1"},
    ),
    "slots_hang": Scene(
        "jobs run a hundred times as long as their task usually does",
        "job_hangs", "3 of the 100 slots of the queue '?default'? hang", slots_hang,
    ),
    "task_slow": Scene(
        "the runs of a task take far longer than on the day before",
        "task_slow", "The task '?quick'? is slow", task_slow,
    ),
    "table_locked": Scene(
        "a session locks the table of the jobs", "lock_wait",
        "has locked the table job", table_locked,
    ),
    "session_blocks": Scene(
        "an open transaction holds the row of the leader", "lock_wait",
        "holds a lock, and", session_blocks,
    ),
    "disk_full": Scene(
        "the disk of the jobs' table is full", "server_short",
        "The database refused what .*No space left on device", disk_full,
        {"DETECTION_SCHEDULE": "1"}, own=True,
    ),
    "few_connections": Scene(
        "the connections of the database are almost all in use",
        "connections", "connections of the database", few_connections,
    ),
}  # fmt: skip


def _unmount(disks: list[Path]) -> None:
    for disk in disks:
        subprocess.run(["umount", disk], check=True)
        disk.rmdir()


@contextmanager
def staged(scene: Scene, shared_dsn: str, folder: Path) -> Iterator[Stage]:
    """``shared_dsn``: of the server on which a database is made for it."""
    with ExitStack() as stack:
        env = dict(scene.env)
        disks: list[Path] = []
        stack.callback(_unmount, disks)
        if scene.clock or scene.own:
            server = Server()
            stack.callback(server.close)
            shared_dsn = server.dsn
        if scene.clock:
            assert server.clock, "libfaketime is not installed"
            env["DETECTION_CLOCK"] = server.clock.environ["FAKETIME_TIMESTAMP_FILE"]
        dsn = stack.enter_context(servers.database(shared_dsn))
        procs = stack.enter_context(Processes(folder))
        stage = Stage(dsn, procs, stack, folder, env, disks)
        stage.prepare()
        yield stage
