"""Run the whole example: a settlement hangs, somebody is paged, the process is killed right after
the page, and the other process requests the repair.

python run.py
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
LEASEWORK = [sys.executable, "-m", "leasework"]


def main() -> None:
    os.chdir(HERE)
    oncall = subprocess.Popen(
        [sys.executable, "oncall.py", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert oncall.stdout
    os.environ["ONCALL_URL"] = url = oncall.stdout.readline().split()[-1]
    from settlement import app, settle

    os.environ["LEASEWORK_DSN"] = asyncio.run(prepare(app))
    workers = subprocess.Popen([*LEASEWORK, "worker", "settlement:app", "--processes", "2"])
    try:
        ask(url + "/hold")
        app.sync.enqueue(settle.job(batch=1))
        app.sync.enqueue(settle.job(batch=2, bank_hangs=True))
        page = wait_for(lambda: journal(url)["waiting"], "a page")[0]
        pid = int(page["by"].split(":")[1])
        print(f"paged by process {pid}: killed before it hears the answer", flush=True)
        os.kill(pid, signal.SIGKILL)
        ask(url + "/release")
        wait_for(lambda: journal(url)["repairs"], "the repair")
        found = journal(url)
        print(json.dumps({kind: len(found[kind]) for kind in ("incidents", "repeated", "repairs")}))
        subprocess.run([*LEASEWORK, "deadlines"])
    finally:
        # one settlement hangs; do not wait for it
        workers.terminate()
        try:
            workers.wait(5)
        except subprocess.TimeoutExpired:
            workers.kill()
        oncall.kill()


async def prepare(app: object) -> str:
    """Apply the schema, and return the DSN, so that all processes use the same server."""
    await app.apply_schema()
    return await app.dsn()


def journal(url: str) -> dict:
    with urllib.request.urlopen(url + "/journal", timeout=10) as answer:
        return json.load(answer)


def ask(url: str) -> None:
    urllib.request.urlopen(urllib.request.Request(url, b"{}", method="POST"), timeout=10).read()


def wait_for(look: Callable[[], list], what: str, seconds: float = 60) -> list:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.1)
    raise TimeoutError(f"waited {seconds:g} s for {what}")


if __name__ == "__main__":
    main()
