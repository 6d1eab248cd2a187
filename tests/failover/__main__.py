"""``make failover``: under load the primary is killed, handed over, frozen and thawed, and killed
with WAL that no replica has; the answers are held against what the producers were told.

``python -m tests.failover [--report FILE] [SCENARIO …]``; exit status 0, or 1 when a check failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.failover.cluster import Cluster, now
from tests.failover.load import RECOVER_WITHIN
from tests.support.wait import until

WORKERS, PRODUCERS = 3, 2
WARM_SECONDS = 6.0
BOTH_SECONDS = 2.0
SLACK_SECONDS = 5.0
"""For a machine that does other things as well."""
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Result:
    """What one scenario showed; it holds when every check does."""

    scenario: str
    checks: dict[str, bool] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return bool(self.checks) and all(self.checks.values())


class Load:
    """Workers and producers with a journal of their own."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.journal = folder / "journal"
        self.journal.touch()
        self.folder = folder
        self.dsn = cluster.dsn
        self.producers = [self._start("producer", f"p{n}") for n in range(PRODUCERS)]
        self.workers = [self._start("worker", f"w{n}") for n in range(WORKERS)]

    def _start(self, role: str, name: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.failover.load", role],
                cwd=ROOT,
                env={**os.environ, "LEASEWORK_DSN": self.dsn, "JOURNAL": str(self.journal),
                     "PRODUCER": name},
                stdout=log, stderr=log,
            )  # fmt: skip

    def entries(self, what: str, since: float = 0.0) -> list[dict[str, Any]]:
        lines = self.journal.read_bytes().split(b"\n")[:-1]
        found = (json.loads(line) for line in lines)
        return [e for e in found if e["what"] == what and e["at"] >= since]

    def flows(self, since: float) -> bool:
        """New jobs are acknowledged and run, and ticks fire."""
        acked = {e["n"] for e in self.entries("acked", since)}
        ran = {e["n"] for e in self.entries("ran", since)}
        return len(acked & ran) >= 5 and bool(self.entries("tick", since))

    def stop_producers(self) -> None:
        for one in self.producers:
            one.kill()
            one.wait()

    def stop(self) -> None:
        self.stop_producers()
        for one in self.workers:
            one.kill()
            one.wait()


# -- what is done to the primary -------------------------------------------------------------------
def kill(cluster: Cluster, old: str, load: Load) -> None:
    cluster.kill(old)
    until(lambda: cluster.leader() not in (None, old), 90, "another primary")


def switch_over(cluster: Cluster, old: str, load: Load) -> None:
    cluster.switch_over()
    until(lambda: cluster.leader() not in (None, old), 90, "another primary")


def freeze(cluster: Cluster, old: str, load: Load) -> None:
    """Promotion while the old primary lives: its host stands still, and then goes on."""
    frozen = cluster.freeze(old)
    try:
        until(lambda: cluster.leader() not in (None, old), 120, "another primary")
        time.sleep(BOTH_SECONDS)  # two that take themselves for the primary
    finally:
        for one in frozen:
            one.resume()


def kill_ahead(cluster: Cluster, old: str, load: Load) -> None:
    """Acknowledged commits that no replica has are lost with the primary; a term among them, whose
    holder goes on to believe in it."""
    if cluster.hold_back_wal(old) < 2:
        raise RuntimeError("no sender of WAL was found")
    with cluster.direct(old) as look:
        row = look.execute(
            "select n.pid from leasework.leader l join leasework.node n on n.id = l.node"
        ).fetchone()
    assert row, "nobody leads"
    began = now()
    next(one for one in load.workers if one.pid == row[0]).terminate()
    until(lambda: load.entries("term", began), 30, "a term that will be lost")
    until(lambda: len(load.entries("acked", began)) > 20, 30, "jobs that will be lost")
    cluster.kill(old)
    until(lambda: cluster.leader() not in (None, old), 90, "another primary")


SCENARIOS: dict[str, tuple[bool, Callable[[Cluster, str, Load], None]]] = {
    "sync-kill": (True, kill),
    "sync-switchover": (True, switch_over),
    "sync-freeze": (True, freeze),
    "async-lost-wal": (False, kill_ahead),
}
"""Is the cluster synchronous, and what is done."""


# -- one scenario ----------------------------------------------------------------------------------
def run(name: str, cluster: Cluster, folder: Path) -> Result:
    synchronous, harm = SCENARIOS[name]
    result = Result(name)
    folder.mkdir()
    load = Load(cluster, folder)
    try:
        until(lambda: load.flows(0.0), 60, "the load", every=0.2)
        time.sleep(WARM_SECONDS)
        old = until(cluster.leader, 30, "a leader")
        began = now()
        harm(cluster, old, load)
        promoted = now()
        bound = RECOVER_WITHIN + SLACK_SECONDS
        recovered = _wait(lambda: load.flows(promoted), 3 * bound)
        took = now() - promoted
        time.sleep(WARM_SECONDS)
        load.stop_producers()
        drained = _wait(lambda: not _unfinished(cluster), 60)
        result.figures = {
            "old_primary": old, "new_primary": cluster.leader(),
            "promotion_seconds": round(promoted - began, 1),
            "running_again_seconds": round(took, 1), "bound_seconds": bound,
        }  # fmt: skip
        result.checks["a leader and jobs run again within the bound"] = recovered and took <= bound
        result.checks["every job that is there ends"] = drained
        judge(result, load, cluster, (began, promoted), synchronous)
    finally:
        load.stop()
    return result


def judge(
    result: Result, load: Load, cluster: Cluster, moments: tuple[float, float], synchronous: bool
) -> None:
    began, promoted = moments
    acked = {e["job"] for e in load.entries("acked")}
    with cluster.direct(until(cluster.leader, 60, "a leader")) as look:
        rows = look.execute("select id::text, state from leasework.jobs").fetchall()
        timeline = look.execute("select leasework.timeline()").fetchone()
    there = dict(rows)
    lost = acked - there.keys()
    runs = load.entries("ran") + load.entries("tick")
    by_token = Counter(e["token"] for e in runs)
    terms = [(e["name"], e["term"]) for e in load.entries("term")]
    again = Counter(terms)
    grew = [e for e in runs if e["at"] >= began]
    result.figures |= {
        "acknowledged": len(acked), "lost": len(lost), "unknown": len(load.entries("unknown")),
        "runs": len(runs), "terms": len(terms), "timeline": timeline[0] if timeline else None,
        "twice": sum(count > 1 for count in by_token.values()),
    }  # fmt: skip
    result.checks["enough was acknowledged and ran to mean anything"] = (
        len(acked) > 200 and len(grew) > 50 and len(terms) >= 1
    )
    if synchronous:
        result.checks["no acknowledged job is lost"] = not lost
    else:
        result.checks["commits were lost, and are counted"] = len(lost) > 0
        after = [e["term"] for e in load.entries("term", promoted)]
        before = [e["term"] for e in load.entries("term") if e["at"] < promoted]
        result.checks["a term was lost, and those after it are higher"] = (
            len(before) > 1 and len(after) > 0 and min(after) > max(before)
        )
    result.checks["no claim's token came twice"] = max(by_token.values(), default=0) <= 1
    result.checks["no term came twice"] = max(again.values(), default=0) <= 1
    done = {job for job, state in there.items() if state == "completed"}
    result.checks["what was acknowledged and is there has completed"] = acked - lost <= done


def _unfinished(cluster: Cluster) -> int:
    leader = cluster.leader()
    if leader is None:
        return 1
    with cluster.direct(leader) as look:
        row = look.execute("select count(*) from leasework.job where task_name = 'work'").fetchone()
    return int(row[0]) if row else 1


def _wait(there: Callable[[], bool], seconds: float) -> bool:
    end = now() + seconds
    while now() < end:
        try:
            if there():
                return True
        except OSError:
            pass
        time.sleep(0.1)
    return False


def fresh(cluster: Cluster) -> None:
    """An empty schema for the next scenario."""
    with cluster.direct(until(cluster.leader, 60, "a leader")) as own:
        own.execute("drop schema if exists leasework cascade")
    subprocess.run(
        [sys.executable, "-m", "leasework", "schema", "apply", "--dsn", cluster.dsn],
        cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip


def show(results: list[Result]) -> None:
    for result in results:
        print(f"\n{result.scenario}: {'holds' if result.ok else 'BROKEN'}")
        for check, good in result.checks.items():
            print(f"  {'ok    ' if good else 'FAILED'}  {check}")
        print("  " + "  ".join(f"{key}={value}" for key, value in result.figures.items()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make failover")
    parser.add_argument("scenarios", nargs="*", default=list(SCENARIOS), metavar="SCENARIO")
    parser.add_argument("--report", type=Path, help="keep the scorecard as JSON")
    chosen = parser.parse_args()
    if unknown := set(chosen.scenarios) - SCENARIOS.keys():
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(SCENARIOS)}")
    cluster = Cluster(synchronous=True)
    results: list[Result] = []
    try:
        print("Three servers under Patroni are being started ...", flush=True)
        cluster.start()
        for name in chosen.scenarios:
            print(f"{name} ...", flush=True)
            cluster.configure(synchronous_mode=SCENARIOS[name][0])
            cluster.synchronous = SCENARIOS[name][0]
            cluster.whole()
            fresh(cluster)
            results.append(run(name, cluster, cluster.folder / f"run-{name}"))
            show(results[-1:])
    except BaseException:
        for log in sorted(cluster.folder.glob("*.log")) + sorted(
            cluster.folder.glob("run-*/w0.log")
        ):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-2500:]}", file=sys.stderr)
        raise
    finally:
        cluster.stop()
    ok = all(result.ok for result in results)
    if chosen.report:
        chosen.report.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"ok": ok, "scenarios": [asdict(r) for r in results]}, indent=1)
        chosen.report.write_text(text + "\n")
    print(f"\n{sum(r.ok for r in results)} of {len(results)} scenarios hold")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
