"""Run the whole example: the store, two workers and a job. Print what the store keeps.

python run.py [--json]
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LEASEWORK = [sys.executable, "-m", "leasework"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true", help="one line of figures at the end")
    as_json = parser.parse_args().json
    os.chdir(HERE)
    os.environ.setdefault("LEASEWORK_DSN", "embedded")
    store = subprocess.Popen(
        [sys.executable, "store.py", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert store.stdout
    os.environ["STORE_URL"] = store.stdout.readline().split()[-1]
    subprocess.run([*LEASEWORK, "schema", "apply"], check=True)
    workers = subprocess.Popen([*LEASEWORK, "worker", "tasks:app", "--processes", "2"])
    try:
        found = publish_and_look()
    finally:
        workers.terminate()
        workers.wait()
        store.terminate()
        store.wait()
    for write in found["journal"]:
        done = "kept" if write["accepted"] else "REFUSED"
        print(f"{write['path']:<20} token {write['token']}: {write['value']}: {done}")
    print(f"trusting keeps: {found['trusting']}\nfenced keeps:   {found['fenced']}")
    if as_json:
        print(json.dumps(found))


def publish_and_look() -> dict:
    from tasks import app, call, publish

    job = app.sync.enqueue(publish.job(name="report"))
    job.wait(timeout=60)
    journal: list = []
    give_up_at = time.monotonic() + 60
    while len(journal) < 4 and time.monotonic() < give_up_at:  # until the late one has written
        time.sleep(0.05)
        journal = call("GET", "/journal")[1]  # type: ignore[assignment]
    kept = {kind: call("GET", f"/{kind}/report")[1]["value"] for kind in ("trusting", "fenced")}
    return {**kept, "journal": journal}


if __name__ == "__main__":
    main()
