"""Run the whole example: start three workers, enqueue jobs, and show what the workers did.

python run.py
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LEASEWORK = [sys.executable, "-m", "leasework"]


def main() -> None:
    os.chdir(HERE)
    os.environ.setdefault("LEASEWORK_DSN", "embedded")
    subprocess.run([*LEASEWORK, "schema", "apply"], check=True)
    workers = subprocess.Popen([*LEASEWORK, "worker", "tasks:app", "--processes", "3"])
    try:
        subprocess.run([sys.executable, "produce.py", "--wait"], check=True)
        subprocess.run([*LEASEWORK, "status"])
        subprocess.run([*LEASEWORK, "jobs", "--state", "discarded"])
    finally:
        workers.terminate()
        workers.wait()


if __name__ == "__main__":
    main()
