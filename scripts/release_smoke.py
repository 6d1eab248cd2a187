"""Installs the built wheels into an empty environment, and runs the README's first example."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
SERVERS = ("fastapi", "gunicorn", "uvicorn-worker")
"""What the first example needs besides leasework."""
PATIENCE_SECONDS = 180.0
_CORE_ALONE = """
import importlib.util, leasework
from importlib.metadata import version
assert importlib.util.find_spec("leasework_lab") is None, "the core brings the laboratory"
assert version("leasework") == {version!r}, version("leasework")
assert leasework.App("postgresql://localhost/none").settings.grace > 0
"""


def first_example() -> str:
    """The file ``main.py`` of the README."""
    found = re.search(
        r'^```python title="main.py"\n(.*?)^```$', README.read_text("utf-8"), re.M | re.S
    )
    assert found, "the README has no main.py"
    return found[1]


def smoke(
    interpreter: str,
    wheels: Mapping[str, Path],
    version: str,
    work: Path,
    run: Callable[..., str],
) -> str:
    """Return what was done. ``run`` runs a command, returns its output, and raises if it fails.

    pip gets the wheels by their paths, and looks up only their dependencies, where it is
    configured to.
    """
    venv = work / "smoke"
    run(interpreter, "-m", "venv", "--clear", venv)
    python, command = venv / "bin" / "python", venv / "bin" / "leasework"
    install = (python, "-m", "pip", "install", "-q", "--no-compile")
    core = wheels["leasework"]
    run(*install, core)
    told = run(command, "--version").strip()
    if version not in told:
        raise AssertionError(f"leasework --version printed {told!r}")
    run(python, "-c", _CORE_ALONE.format(version=version), cwd=work)
    run(*install, f"{core}[embedded,web]", wheels["leasework_lab"], *SERVERS)
    run(python, "-m", "pip", "check")
    if "\n  demo " not in run(command, "--help"):
        raise AssertionError("the laboratory did not add its commands")
    state = _example(venv / "bin", run)
    shutil.rmtree(venv)
    return f"{told}, the core alone, the laboratory, and the first example: {state}"


def _example(programs: Path, run: Callable[..., str]) -> str:
    """The steps that the README shows under its example, on the embedded server."""
    # The server's socket allows only short paths.
    with tempfile.TemporaryDirectory(prefix="lw-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "main.py").write_text(first_example())
        env = {"LEASEWORK_DSN": "embedded", "LEASEWORK_HOME": str(folder / "home")}
        env["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        run(programs / "leasework", "schema", "apply", env=env, cwd=folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        words = ["gunicorn", "-w", "2", "-k", "uvicorn_worker.UvicornWorker"]
        words += ["-b", f"127.0.0.1:{port}", "main:web"]
        with (folder / "log").open("wb") as log:
            web = subprocess.Popen(
                [str(programs / words[0]), *words[1:]],
                cwd=folder,
                env={**os.environ, **env},
                stdout=log,
                stderr=log,
            )
        try:
            job = _post(f"http://127.0.0.1:{port}/users/42", web, folder / "log")
            return _finished(job, lambda: run(programs / "leasework", "jobs", "--json",
                                              env=env, cwd=folder))  # fmt: skip
        finally:
            web.send_signal(signal.SIGTERM)
            try:
                web.wait(60)
            except subprocess.TimeoutExpired:
                web.kill()
                web.wait()


def _post(url: str, web: subprocess.Popen[bytes], log: Path) -> str:
    """The job's id, as soon as the site answers."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and web.poll() is None:
        try:
            request = urllib.request.Request(url, method="POST")
            with urllib.request.urlopen(request, timeout=30) as answer:
                return str(json.load(answer))
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"the example does not answer:\n{log.read_text(errors='replace')}")


def _finished(job: str, jobs: Callable[[], str]) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    said = ""
    while time.monotonic() < deadline:
        said = jobs()
        if any(one["id"] == job and one["state"] == "completed" for one in json.loads(said)):
            return "completed"
        time.sleep(0.5)
    raise AssertionError(f"job {job} did not complete:\n{said}")
