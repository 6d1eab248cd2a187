"""Run the example: kill the worker while the agent waits for approval, approve, show the answer.

python run.py
"""

import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LEASEWORK = [sys.executable, "-m", "leasework"]
WORKER = [*LEASEWORK, "worker", "agent:app"]


def main() -> None:
    os.chdir(HERE)
    os.environ.setdefault("LEASEWORK_DSN", "embedded")
    calls = Path(os.environ.setdefault("CALLS", "calls.log"))
    calls.unlink(missing_ok=True)
    subprocess.run([*LEASEWORK, "schema", "apply"], check=True)
    from agent import agent, app

    worker = subprocess.Popen(WORKER)
    try:
        job = app.sync.enqueue(agent.job("Book the trip"))
        while app.sync.get(job.id).held_because != "event":
            time.sleep(0.1)
        print("the agent waits for approval; the worker is killed", flush=True)
        worker.kill()
        worker.wait()
        worker = subprocess.Popen(WORKER)
        app.sync.signal(job.id, "approval", {"ok": True})
        print("answer:", job.wait(timeout=120), flush=True)
        print("calls:", ", ".join(calls.read_text().splitlines()), flush=True)
    finally:
        worker.terminate()
        worker.wait()
        app.sync.close()


if __name__ == "__main__":
    main()
