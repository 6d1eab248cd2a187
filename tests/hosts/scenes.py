"""A host loses its link while its jobs run: what must have happened by when."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from tests.e2e.fault_apps.scene import RECOVER_WITHIN, SLACK, TIMES, WORKER, Scene, boot_now
from tests.hosts.network import Network
from tests.support.procs import Process
from tests.support.wait import until

JOBS = 6


@contextmanager
def hosts(*names: str) -> Iterator[tuple[Network, Scene]]:
    """A network of these hosts, and the scene on its server."""
    network = Network(*names)
    try:
        scene = Scene(SimpleNamespace(dsn=network.dsn))
        try:
            yield network, scene
        except BaseException as error:
            error.add_note(scene.procs.report())
            raise
        finally:
            scene.close()
    finally:
        network.close()


def worker(network: Network, scene: Scene, host: str, **env: object) -> Process:
    database = scene.dsn.split("dbname=")[1].split()[0]
    settings = {
        "LEASEWORK_DSN": network.dsn_from_hosts.replace("dbname=postgres", f"dbname={database}"),
        "LEASEWORK_RECOVER_WITHIN": str(RECOVER_WITHIN),
        "HISTORY": str(scene.folder / "history"),
        "HARD_EXIT": "0",
        **{key.upper(): str(value) for key, value in env.items()},
    }
    process = scene.procs.run(
        network.hosts[host].command(sys.executable, "-u", str(WORKER)), name=host, env=settings
    )
    process.wait_for("^up$", 60)
    return process


def link_lost(direction: str, *, leads: bool) -> None:
    """Host ``a`` loses its link, and has it again when all is over. ``leads``: it leads as well."""
    with hosts("a", "b") as (network, scene):
        names = ("a", "b") if leads else ("b", "a")
        processes = {}
        for name in names:  # who comes first leads
            processes[name] = worker(network, scene, name, queues=f"default only{name}", ticks=1)
            scene.wait_for_leader(processes[names[0]])
        a = processes["a"]
        # held by a alone until it is cut off: b knows the queue as well, from then on
        jobs = scene.enqueue("nap", JOBS, options={"queue": "onlya"}, seconds=60)
        [deaf] = scene.enqueue("thread", options={"queue": "onlya"}, seconds=RECOVER_WITHIN + 6)
        scene.wait_history("start", JOBS + 1, 30, pid=a.pid)
        helper = worker(network, scene, "b", queues="onlya")
        cut_at = boot_now()
        network.hosts["a"].cut(direction)

        cancelled = scene.wait_history("cancelled", JOBS, RECOVER_WITHIN + 30, pid=a.pid)
        again = scene.wait_history(
            "start", JOBS + 1, RECOVER_WITHIN + 30, pid=helper.pid, attempt=2
        )
        assert {run["job"] for run in again} == {*jobs, deaf}
        fenced_after = max(line["at"] for line in cancelled) - cut_at
        began_after = min(run["at"] for run in again) - cut_at
        last_after = max(run["at"] for run in again) - cut_at
        print(
            f"{direction}: fenced itself after {fenced_after:.1f} s, the others began after"
            f" {began_after:.1f} s, all ran again after {last_after:.1f} s"
        )
        assert fenced_after <= TIMES.trust + TIMES.grace + SLACK
        for line in cancelled:  # each: ended here before it began there
            there = next(run for run in again if run["job"] == line["job"])
            assert line["at"] < there["at"], "it ran in two places"
        assert last_after <= RECOVER_WITHIN + SLACK

        # what the thread, deaf to everything, still writes when the link is back changes nothing
        [late] = scene.history("start", job=deaf, pid=a.pid)
        network.hosts["a"].mend()
        scene.wait_history("end", 1, 60, job=deaf, pid=a.pid)
        scene.wait_history("end", 1, 60, job=deaf, pid=helper.pid)
        done = until(lambda: scene.states([deaf]).get("completed"), 30, "the deaf job's end")
        assert done == 1
        [(attempt, token)] = scene.sql(
            "select attempt, claim_token from leasework.job_done where id = %s::uuid", deaf
        )
        assert attempt == 2 and token > late["token"], "the late write was taken"
        until(lambda: scene.node_ids(a), 60, "the host to take part again")
        check_terms(scene)
        scene.check_ticks()


def check_terms(scene: Scene) -> None:
    terms = [t for (t,) in scene.sql("select token from leasework.term order by acquired_at")]
    assert terms == sorted(set(terms)), "a term came twice, or terms went back"


def link_flaps(times: int) -> None:
    """Lost and there again, shorter and longer than a lease: no job is lost, none runs twice."""
    with hosts("a", "b") as (network, scene):
        processes = [worker(network, scene, name, ticks=1, slots=10) for name in ("a", "b")]
        scene.wait_for_leader(*processes)
        jobs: list[str] = []
        for turn in range(times):
            jobs += scene.enqueue("nap", 40, seconds=0.2)
            host = network.hosts["ab"[turn % 2]]
            host.cut(("in", "out", "both")[turn % 3])
            scene.wait_until_clock(boot_now() + (1.0, 4.0, 8.0)[turn % 3])
            host.mend()
            scene.wait_until_clock(boot_now() + 2.0)
        scene.wait_done(jobs, 90)
        scene.check_overlaps()
        check_terms(scene)
