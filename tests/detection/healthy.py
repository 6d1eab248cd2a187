"""``make healthy``: a healthy, busy application for some minutes, with a deployment now and then.
Any problem that status or the alerts say is false.

The application does what healthy ones do: some attempts fail and succeed the next time, one job in
a thousand is discarded, schedules fire each second, and workers are replaced in good order.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import click
import psycopg

from tests.detection.scenes import Stage
from tests.support import postgres as servers
from tests.support.procs import ROOT, Process, Processes
from tests.support.wait import stall

APP = "tests.detection.busy:app"
JOBS_A_SECOND = 40
DEPLOY_SECONDS = 120.0
LOOK_SECONDS = 2.0


@click.command()
@click.option("--minutes", type=float, default=60.0, show_default=True)
def main(minutes: float) -> None:
    with (
        servers.server() as shared,
        servers.database(shared.dsn) as dsn,
        tempfile.TemporaryDirectory(prefix="lh-healthy-") as folder,
        ExitStack() as stack,
    ):
        procs = stack.enter_context(Processes(Path(folder)))
        stage = Stage(dsn, procs, stack, Path(folder))
        stage.prepare()
        false, looks, deployments = run(stage, minutes * 60)
        done = stage.sql("select state, count(*) from leasework.jobs group by 1 order by 1")
    click.echo(f"{minutes:g} minutes, {looks} looks, {deployments} deployments, jobs: {dict(done)}")
    for sentence, times in false.most_common():
        click.echo(f"FALSE ({times} looks): {sentence}")
    click.echo("No false problem." if not false else f"{len(false)} false problems.")
    sys.exit(1 if false else 0)


def run(stage: Stage, seconds: float) -> tuple[Counter[str], int, int]:
    """(what was said, looks, deployments)"""
    false: Counter[str] = Counter()
    workers = [supervisor(stage)]
    over = threading.Event()
    feeder = threading.Thread(target=feed, args=(stage.dsn, over), daemon=True)
    feeder.start()
    looks = deployments = 0
    end, next_deployment = time.monotonic() + seconds, time.monotonic() + DEPLOY_SECONDS
    while time.monotonic() < end:
        looks += 1
        false.update(said(stage))
        if time.monotonic() > next_deployment:
            next_deployment += DEPLOY_SECONDS
            deployments += 1
            workers = deploy(stage, workers, rolling=bool(deployments % 2))
        stall(LOOK_SECONDS)
    over.set()
    feeder.join(30)
    return false, looks, deployments


def said(stage: Stage) -> set[str]:
    """The problems of `leasework status` and the alerts."""
    done = subprocess.run(
        [sys.executable, "-m", "leasework", "status", "--json"], env=stage.env, cwd=ROOT,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    problems = json.loads(done.stdout)["problems"]
    firing = (f"alert {name}" for name, state in stage.alerts.active().items() if state == "firing")
    return {f"{found['kind']}: {found['sentence']}" for found in problems} | set(firing)


def supervisor(stage: Stage) -> Process:
    process = stage.procs.start(
        "-m", "leasework", "worker", APP, "--processes", "2", "--queue", "default=20",
        name=f"supervisor{len(stage.procs.all)}", env=stage.env,
    )  # fmt: skip
    process.wait_for("node_started", 60, count=2)
    return process


def deploy(stage: Stage, old: list[Process], *, rolling: bool) -> list[Process]:
    """The new ones before the old ones end (rolling), or after."""
    new = [supervisor(stage)] if rolling else []
    for process in old:
        process.kill(signal.SIGTERM)
        assert process.wait(60) == 0, process.tail()
    return new or [supervisor(stage)]


def feed(dsn: str, over: threading.Event) -> None:
    """Jobs as users enqueue them: a thousand in turn, most of them quick."""
    number = 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not over.wait(1.0):
            batch = []
            for _ in range(JOBS_A_SECOND):
                number += 1
                task = "slow" if number % 10 == 0 else "unlucky" if number % 50 == 1 else "quick"
                batch.append({"task": task, "payload": {"number": number}, "max_attempts": 3})
            connection.execute("select id from leasework.enqueue(%s)", (json.dumps(batch),))


if __name__ == "__main__":
    main()
