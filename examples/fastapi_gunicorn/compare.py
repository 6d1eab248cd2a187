"""Run both services side by side, each under gunicorn with four workers, and compare the moments
that were due, the runs and their cost.

    python compare.py --seconds 20 [--json]
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from analysis import COST_WON
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
EVERY_SECONDS = 1
DAYS = 30


class Service:
    """One of the two services: its gunicorn process and the runs that it recorded."""

    def __init__(self, module: str, folder: Path) -> None:
        self.log = folder / f"{module}.jsonl"
        self.output = folder / f"{module}.log"
        env = os.environ | {
            "ANALYSIS_LOG": str(self.log),
            "ANALYSIS_EVERY_SECONDS": str(EVERY_SECONDS),
        }
        command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py"]
        command += ["--bind", f"unix:{folder / module}.sock", f"{module}:web"]
        with self.output.open("wb") as out:
            self.gunicorn = subprocess.Popen(
                command, cwd=HERE, env=env, stdout=out, stderr=subprocess.STDOUT
            )

    def runs(self) -> list[dict]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        runs = [json.loads(line) for line in lines]
        return [run | {"due": datetime.fromisoformat(run["due"]).timestamp()} for run in runs]

    def wait_until(self, met, what: str) -> None:
        """Wait until ``met(runs)``."""
        give_up_at = time.monotonic() + 60
        while not met(self.runs()):
            if self.gunicorn.poll() is not None or time.monotonic() > give_up_at:
                sys.exit(f"{what} did not come:\n{self.output.read_text()}")
            time.sleep(0.05)

    def cpu_seconds(self) -> float:
        """CPU seconds that the arbiter and its workers have used so far. NaN without /proc."""
        if not Path("/proc/self/stat").exists():
            return math.nan
        arbiter = self.gunicorn.pid
        children = Path(f"/proc/{arbiter}/task/{arbiter}/children").read_text().split()
        ticks = 0
        for pid in [str(arbiter), *children]:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.gunicorn.terminate()
        self.gunicorn.wait()


def measure(services: list[Service], seconds: int) -> list[dict]:
    """Count the runs of all services in the same period."""
    for service in services:
        service.wait_until(bool, "a first run")
    services[0].wait_until(lambda runs: len({run["pid"] for run in runs}) == 4, "the 4th worker")
    start = math.ceil(time.time()) + 1
    end = start + seconds * EVERY_SECONDS
    time.sleep(start - 0.5 - time.time())
    before = [service.cpu_seconds() for service in services]
    time.sleep(end - 0.5 - time.time())
    cpu = [service.cpu_seconds() - b for service, b in zip(services, before, strict=True)]
    for service in services:
        service.wait_until(lambda runs: any(run["due"] >= end for run in runs), "the last run")
        service.stop()
    due = range(start, end, EVERY_SECONDS)
    return [figures(s.runs(), due, c) for s, c in zip(services, cpu, strict=True)]


def figures(runs: list[dict], due: range, cpu_seconds: float) -> dict:
    runs = [run for run in runs if due.start <= run["due"] < due.stop]
    runs_a_day = len(runs) / len(due)  # in real life one is due each day
    return {
        "due": len(due),
        "runs": len(runs),
        "missed": len(set(due) - {run["due"] for run in runs}),
        "cost_won": sum(run["cost_won"] for run in runs),
        "cpu_seconds_of_the_runs": round(sum(run["cpu_seconds"] for run in runs), 2),
        "cpu_seconds_of_the_service": None if math.isnan(cpu_seconds) else round(cpu_seconds, 2),
        "runs_a_day": round(runs_a_day, 2),
        "won_a_month": round(runs_a_day * DAYS * COST_WON),
    }


def shown(figure: float | None) -> str:
    return "?" if figure is None else f"{figure:,}"


def show(report: dict[str, dict]) -> None:
    table = Table(title=f"4 workers, one analysis due every {EVERY_SECONDS} s")
    for title in ("", *report):
        table.add_column(title, justify="right" if title else "left")
    for key in report["leasework"]:
        table.add_row(key.replace("_", " "), *(shown(f[key]) for f in report.values()))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="only the JSON")
    options = parser.parse_args()
    os.environ.setdefault("LEASEWORK_DSN", "embedded")
    apply = [sys.executable, "-m", "leasework", "schema", "apply"]
    subprocess.run(apply, check=True, stdout=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        services = [
            Service("naive", Path(folder)),
            Service("service", Path(folder)),
        ]
        try:
            naive, leasework = measure(services, options.seconds)
        finally:
            for service in services:
                service.stop()
    report = {"naive": naive, "leasework": leasework}
    if not options.json:
        show(report)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
