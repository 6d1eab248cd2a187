"""The commands of deploy/compose.yaml, run in its order without containers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from tests.docs.test_deploy import DEPLOY, compose, port_of
from tests.support.wait import until

TOKEN = "a-token-for-tests"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.timeout(300)
def test_the_services_start_serve_run_a_job_and_stop(direct_dsn, procs):
    shutil.copy(DEPLOY / "main.py", procs.folder)
    services = compose()
    ports = {port_of(services[name]["command"]): free_port() for name in ("web", "dashboard")}
    env = {"LEASEWORK_DSN": direct_dsn, "LEASEWORK_WEB_TOKEN": TOKEN}
    env["PYTHONPATH"] = os.pathsep.join([str(procs.folder), *filter(None, sys.path)])

    def moved(words: list[str]) -> list[str]:
        """With free ports of this machine in place of the container's."""
        if words[:2] == ["leasework", "web"]:
            words = [*words, "--port", str(port_of(words))]
        text = "\n".join(words).replace("0.0.0.0", "127.0.0.1")
        for port, free in ports.items():
            text = re.sub(rf"\b{port}\b", str(free), text)
        return text.split("\n")

    def start(name: str):
        return procs.start("-m", *moved(services[name]["command"]), env=env)

    def healthy(name: str) -> bool:
        check = moved(services[name]["healthcheck"]["test"])
        return subprocess.run([sys.executable, *check[2:]], capture_output=True).returncode == 0

    assert start("migrate").wait(60) == 0
    worker, web, dashboard = start("worker"), start("web"), start("dashboard")
    for name in ("web", "dashboard"):
        until(lambda name=name: healthy(name), 90, f"{name} is healthy")
    site = f"http://127.0.0.1:{ports[8000]}"
    job = httpx.post(f"{site}/users/42", timeout=30).json()

    def completed() -> bool:
        words = [sys.executable, "-m", "leasework", "jobs", "--json"]
        told = subprocess.run(words, env={**os.environ, **env}, capture_output=True, check=True)
        return any(
            one["id"] == job and one["state"] == "completed" for one in json.loads(told.stdout)
        )

    until(completed, 90, "a worker runs the job")
    metrics = httpx.get(f"{site}/leasework-ops/metrics", timeout=30)
    assert 'leasework_queue_ready{queue="default"}' in metrics.text
    for process in (worker, web, dashboard):
        process.kill(signal.SIGTERM)
    assert worker.wait(60) == 0 and web.wait(90) == 0
    dashboard.wait(60)
