"""A Python that lacks what Windows lacks: leasework is imported, enqueues and runs."""

from __future__ import annotations

import subprocess
import sys

_WITHOUT = """
import asyncio, importlib, os, pkgutil, signal, sys, time

LACKS = {
    time: "clock_gettime clock_getres clock_settime CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_REALTIME "
          "CLOCK_PROCESS_CPUTIME_ID CLOCK_THREAD_CPUTIME_ID",
    signal: "SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGKILL SIGCHLD SIGSTOP SIGCONT SIGALRM SIGRTMIN "
            "pthread_sigmask setitimer",
    os: "fork register_at_fork getuid geteuid getgid killpg getpgid setsid waitid memfd_create "
        "pidfd_open getloadavg sysconf",
}
GONE = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"}


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in GONE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


for module, names in LACKS.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
for name in GONE:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Finder())
"""
_IMPORTS = """
import leasework

for name in leasework.__all__:
    getattr(leasework, name)
for found in pkgutil.walk_packages(leasework.__path__, "leasework."):
    # a local server and gunicorn do not exist there; Django's parts need a project
    apart = "embedded", "integrations.gunicorn", "integrations.django."
    left_out = tuple(f"leasework.{name}" for name in apart)
    if not found.name.startswith(left_out):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
print("imported")
"""
_CLIENT = """
from leasework import App

app = App(sys.argv[1])

@app.task(name="t")
async def task(number: int) -> int:
    return number

async def main():
    async with app.node():
        job = await task.enqueue(number=2)
        assert await job.wait(60) == 2
    await app.close()

asyncio.run(main())
job = app.sync.enqueue(task.job(number=1))
assert app.sync.get(job.id).state == "available"
app.sync.close()
print("enqueued")
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT + code, *arguments],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_but_the_local_server_is_imported() -> None:
    assert run(_IMPORTS) == "imported\n"


def test_a_job_is_enqueued_and_run(migrated: str) -> None:
    assert run(_CLIENT, migrated).endswith("enqueued\n")
