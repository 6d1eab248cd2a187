"""See the package."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.limits_fire.judge import Check
from tests.support import postgres
from tests.support.procs import ROOT
from tests.upgrade.fleet import Fleet
from tests.upgrade.judge import by_phase, judge
from tests.upgrade.orders import ORDERS, orders_between
from tests.upgrade.versions import BROKEN, BY_NAME, SOUND, Build, Version, next_version

DRAIN_SECONDS = 90.0
SERVER = {"max_connections": "200"}


def run(
    seconds: float, seed: int, build: Build = SOUND, orders: tuple[str, ...] = (),
    drain: float = DRAIN_SECONDS, released: str = "",
) -> list[Check]:  # fmt: skip
    """Rehearse each order for its share of the seconds, and print what was done and found. With
    ``released``, a folder with an older version, from that one to this one."""
    checks = []
    with (
        tempfile.TemporaryDirectory(prefix="leasework-upgrade-") as folder,
        postgres.server(settings=SERVER) as server,
    ):
        if released:
            old, new = Version("old", Path(released).resolve()), Version("new", ROOT)
        else:
            old, new = Version("old", ROOT), next_version(build, Path(folder, "next"))
        orders = orders or orders_between(old, new)
        for order in orders:
            began = time.monotonic()
            said = f"from {released} to this one" if released else f"the next version {build.what}"
            print(f"{order}: {said}", flush=True)
            place = Path(folder, order.replace(" ", "-"))
            place.mkdir()
            with postgres.database(server.dsn) as dsn:
                fleet = Fleet(dsn, place, random.Random(seed))
                try:
                    status, said = fleet.command(old, "schema", "apply")
                    assert status == 0, said
                    ORDERS[order](fleet, old, new, seconds / len(orders))
                    fleet.phase("no more load")
                    left = fleet.drain(drain)
                    found = judge(fleet, left, least=int(seconds))
                finally:
                    fleet.procs.close()
                report(fleet, found, time.monotonic() - began)
            checks += found
    return checks


def report(fleet: Fleet, checks: list[Check], took: float) -> None:
    print(f"{'phase':42} {'seconds':>8} {'enqueued':>9} {'by old':>7} {'by new':>7} {'kills':>6}")
    for name, seconds, sent, by_old, by_new, kills in by_phase(fleet):
        print(f"{name:42} {seconds:8.1f} {sent:9} {by_old:7} {by_new:7} {kills:6}")
    lines = fleet.lines()
    effects = [line["job"] for line in lines if line["what"] == "effect"]
    print(
        f"done in {took:.0f} s: {fleet.replaced} processes replaced, {len(fleet.killed)} killed, "
        f"{len(fleet.refused)} refused the old schema; "
        f"{sum(line['what'] == 'sent' for line in lines)} jobs, {len(effects)} effects, "
        f"{len(effects) - len(set(effects))} of them again after a kill"
    )
    for check in checks:
        said = "ok" if check.ok else f"{len(check.found)} BROKEN" if check.found else "TOO FEW"
        print(f"  {said:>12}  {check.name}: {check.looked_at} looked at")
        for each in check.found[:3]:
            print(f"                {each}")
    print(flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade")
    parser.add_argument("--seconds", type=float, default=120.0, help="of both orders together")
    parser.add_argument("--drain", type=float, default=DRAIN_SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--order", choices=sorted(ORDERS), help="only this one")
    names = [build.name for build in BROKEN]
    parser.add_argument("--broken", default="", choices=names, metavar="NAME")
    parser.add_argument("--list", action="store_true", help="list the broken next versions")
    how = "from this version to the tree: pip install --no-deps --target FOLDER leasework==…"
    parser.add_argument("--old", default="", metavar="FOLDER", help=how)
    given = parser.parse_args()
    if given.list:
        for build in BROKEN:
            print(f"{build.name:15} {build.what}")
        return 0
    orders = (given.order,) if given.order else ()
    build = BY_NAME[given.broken or SOUND.name]
    checks = run(given.seconds, given.seed, build, orders, given.drain, given.old)
    if given.broken:
        caught = list(dict.fromkeys(check.name for check in checks if check.found))
        print(f"{given.broken}: {'caught by: ' + '; '.join(caught) if caught else 'NOT CAUGHT'}")
        return 0 if caught else 1
    return 0 if all(check.ok for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
