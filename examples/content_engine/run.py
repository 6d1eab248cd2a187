"""Run the whole example with short hours: the external API, waiting posts, and a blue and a green
service at once. Print what the API received.

    python run.py [--posts 8] [--kill] [--json]
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import posts

from leasework.embedded import EmbeddedServer

HERE = Path(__file__).resolve().parent
LEASEWORK = [sys.executable, "-m", "leasework"]


def start(stack: ExitStack, out: Any, *command: str, **env: str) -> None:
    """Start a process that ends with this one. Its output goes to ``out``."""
    process = subprocess.Popen(
        command, cwd=HERE, env=os.environ | env, stdout=out, stderr=subprocess.STDOUT
    )
    stack.callback(process.wait)
    stack.callback(process.terminate)


def wait_for(met: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    give_up_at = time.monotonic() + seconds
    while not (found := met()):
        if time.monotonic() > give_up_at:
            sys.exit(f"{what} did not come within {seconds:g} s")
        time.sleep(0.05)
    return found


def kill_a_publisher(api: httpx.Client) -> None:
    """Send SIGKILL to a process whose post has reached the API and that has no answer yet."""
    journal = wait_for(lambda: (j := api.get("/journal").json())["waiting"] and j, "a post")
    release, _, pid = journal["posts"][-1]["client"].partition("/")
    os.kill(int(pid), signal.SIGKILL)
    print(f"killed process {pid} of {release} between its post and the answer", file=sys.stderr)
    api.post("/release")


def report(journal: dict) -> dict:
    received = [entry["post"]["post"] for entry in journal["posts"]]
    sweeps = asyncio.run(posts.sweeps())
    return {
        **asyncio.run(posts.summary()),
        "received_by_the_api": len(received),
        "doubled": len(received) - len(set(received)),
        "refused_with_429": journal["refused"],
        "repeated_and_recognised": len(journal["replayed"]),
        "sweeps": len(sweeps),
        "most_posts_in_a_sweep": max(sweeps.values()),
        "published_by": Counter(entry["client"].split("/")[0] for entry in journal["posts"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--posts", type=int, default=8)
    parser.add_argument("--kill", action="store_true", help="kill -9 a process while it publishes")
    parser.add_argument("--json", action="store_true", help="only the JSON")
    options = parser.parse_args()
    if os.environ.get("LEASEWORK_DSN", "embedded") == "embedded":
        server = EmbeddedServer.start()
        os.environ["LEASEWORK_DSN"] = server.dsn
    os.environ.setdefault("ENGINE_HOUR_SECONDS", "0.5")  # a sweep every 2 seconds
    subprocess.run([*LEASEWORK, "schema", "apply"], check=True, stdout=sys.stderr)
    asyncio.run(posts.make(options.posts))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        log = Path(folder) / "api.log"
        out = stack.enter_context(log.open("wb"))
        start(stack, out, sys.executable, "outside_api.py", "--port", "0")
        url = wait_for(lambda: re.search(r"http://\S+", log.read_text()), "the API")[0]
        api = stack.enter_context(httpx.Client(base_url=url))
        if options.kill:
            api.post("/hold")
        worker = [*LEASEWORK, "worker", "engine:app", "--processes", "2"]
        for release in ("blue", "green"):
            start(stack, sys.stderr, *worker, LEASEWORK_RELEASE=release, ENGINE_API=url)
        if options.kill:
            kill_a_publisher(api)
        wait_for(lambda: asyncio.run(posts.drained()), "the end of the backlog")
        figures = report(api.get("/journal").json())
    if not options.json:
        for name, value in figures.items():
            print(f"{name.replace('_', ' '):24} {value}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
