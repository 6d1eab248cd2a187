"""The measures of bench/ about claims, small: each ends with its tables. None gives a figure for a
slice in which a job was lost or ran twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.measures.held import open_transaction
from bench.parties import chosen
from bench.process import ROOT, commit
from bench.side import costed

pytestmark = pytest.mark.timeout(300)

RAWS = ("raw loop", "raw loop, overlapped")


@pytest.fixture
def bench(tmp_path: Path):
    """Runs a measure for one round; its results."""

    def measured(*words: str) -> list[dict[str, Any]]:
        path = tmp_path / "out.json"
        command = [sys.executable, "-m", "bench", *words, "--rounds=1", f"--json={path}"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=280, cwd=ROOT, env=dict(os.environ)
        )
        assert done.returncode == 0, done.stderr
        results: list[dict[str, Any]] = json.loads(path.read_text())["results"]
        for result in results:
            assert f"### {result['measure']}\n" in done.stdout
            assert all(f"| {name} |" in done.stdout for name in result["contenders"])
        return results

    return measured


def rows(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Contender → its figures."""
    return {name: of["median"] for name, of in result["contenders"].items()}


def test_a_drain_side_by_side_has_both_raw_loops(bench):
    [result] = bench("drain", "--jobs=300", "--history=on")
    assert set(rows(result)) == {*RAWS, "leasework"}
    for figures in rows(result).values():
        assert figures["jobs_per_second"] > 0
        assert figures["backend_cpu_us"] > 0
        assert figures["wal_bytes"] > 0


def test_a_fleet_has_a_column_for_each_number_of_workers_and_for_a_held_snapshot(bench):
    sizes = ("--workers=1", "--held=2")
    results = bench("fleet", "--jobs=300", "--settle=1", *sizes)
    assert len(results) == 4
    for result in results:
        assert list(result["columns"]) == ["1 worker", "2 workers, snapshot held"]
        assert set(rows(result)) == {*RAWS, "leasework"}
        assert all(figure > 0 for of in rows(result).values() for figure in of.values())
    growth, wal = rows(results[2]), rows(results[3])
    assert all(figures["1 worker"] == 1 for figures in growth.values())
    each_job = [bytes_ for of in wal.values() for bytes_ in of.values()]
    assert max(each_job) < 10_000, "the WAL is divided by all jobs, however late the harness looks"


def test_short_jobs_run_while_the_holders_run_all_long_ones_and_no_more(bench):
    load = ("--holders=2", "--workers=2", "--rate=50", "--seconds=2", "--settle=1", "--held")
    [result] = bench("inflight", "--long=0", "--long=39", *load)
    assert list(rows(result)) == ["2 long jobs", "40 long jobs"]
    for name, of in result["contenders"].items():
        [slice_] = of["rounds"]
        assert f"{slice_['long_jobs']} long jobs" == name and slice_["jobs"] == 100
        assert all(slice_[key] > 0 for key in result["columns"])


def test_one_queue_and_many_are_measured_idle_and_busy(bench):
    [result] = bench("queues", "--jobs=300", "--queues=5", "--seconds=2", "--settle=2")
    assert set(rows(result)) == {"1 queue", "5 queues"}
    for figures in rows(result).values():
        assert figures["idle_statements"] > 0 and figures["server_cpu_us"] > 0


def test_statements_of_idle_workers_are_those_of_the_leader_and_of_the_followers(bench):
    [result] = bench("nodes", "--workers=2", "--seconds=2", "--settle=2")
    assert set(rows(result)) == {"raw loop", "leasework"}
    for figures in rows(result).values():
        assert figures["connections"] >= 2
        parts = figures["leader_statements"] + figures["follower_statements"]
        assert parts == pytest.approx(figures["statements"])
    assert rows(result)["leasework"]["leader_statements"] > 0


def test_moments_are_spread_over_some_seconds(bench):
    [result] = bench("schedules", "--count=60", "--due=40", "--spread=2", "--idle=0.1", "--lead=8")
    assert "40 of them due with moments spread over 2 s" in result["setting"]
    figures = rows(result)["leasework"]
    assert 0 < figures["late_p50"] <= figures["late_p99"] <= figures["late_max"]
    assert figures["ran_late"] > -0.1, "the last one ran before its moment: at the first one's"


def test_another_checkout_is_measured_by_its_own_contender_and_its_own_leasework(
    bench, tmp_path: Path
):
    other = tmp_path / "other"
    for folder in ("bench", "leasework"):
        shutil.copytree(ROOT / folder, other / folder)
    (other / ".venv").symlink_to(sys.prefix)
    with (other / "bench" / "contenders" / "lease.py").open("a") as file:
        file.write("\nimport leasework\nopen('used', 'a').write(leasework.__file__ + '\\n')\n")
    me = ["-c", "user.name=tester", "-c", "user.email=tester@example.org"]
    for words in (["init"], ["commit", "--allow-empty", "-m", "one"]):
        subprocess.run(["git", *me, *words], cwd=other, check=True, capture_output=True)

    name = f"build {commit(other)}"
    [result] = bench("enqueue", "--jobs=300", "--bulk=20000", f"--with=build={other}")
    assert set(rows(result)) == {"raw loop", "leasework", name}
    assert all(figure > 0 for of in rows(result).values() for figure in of.values())
    assert set((other / "used").read_text().split()) == {str(other / "leasework" / "__init__.py")}
    report = (tmp_path / "out.json").read_text()
    assert str(other) not in report and f"--with=build={commit(other)}" in report


def test_a_folder_without_a_venv_is_no_other_build(tmp_path: Path):
    with pytest.raises(SystemExit, match="no checkout of leasework with a venv"):
        chosen([f"build={tmp_path}"])


def test_the_cpu_of_a_job_leaves_out_what_the_first_and_each_call_costs():
    calls: list[int] = []

    def act(jobs: int) -> dict[str, float]:
        calls.append(jobs)
        burn(0.2 if len(calls) == 1 else 0.02)
        burn(0.001 * jobs)
        return {"seconds": 1.0}

    answer = costed(act, jobs=50)
    assert calls == [1, 1, 50] and answer["seconds"] == 1.0
    assert answer["cpu_seconds"] == pytest.approx(0.049, abs=0.03)


def burn(seconds: float) -> None:
    """CPU of this process."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_heartbeat_is_measured_among_few_and_among_many_nodes(bench):
    [result] = bench("heartbeats", "--nodes=2", "--nodes=40", "--count=20", "--pause=0.001")
    assert set(rows(result)) == {"2 nodes", "40 nodes"}
    for figures in rows(result).values():
        assert all(figures[key] > 0 for key in result["columns"])


@pytest.mark.parametrize("writes", [True, False])
def test_a_transaction_held_open_keeps_its_snapshot_and_has_an_xid_only_if_it_writes(
    direct_dsn: str, writes: bool
):
    with open_transaction(direct_dsn, writes) as holder, psycopg.connect(direct_dsn) as other:
        row = other.execute(
            "select backend_xmin is not null, backend_xid is not null from pg_stat_activity"
            " where pid = %s",
            [holder.info.backend_pid],
        ).fetchone()
    assert row == (True, writes)
