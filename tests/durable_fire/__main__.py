"""See the package."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from leasework.config import Settings
from leasework.pg.schema import migrate
from tests.durable_fire.builds import BUILDS, BY_NAME, apply_to_database
from tests.durable_fire.faults import Fire
from tests.durable_fire.judge import ENDED, History, judge
from tests.limits_fire.__main__ import DRAIN_SECONDS, SERVER
from tests.limits_fire.judge import Check
from tests.limits_fire.record import SETUP
from tests.limits_fire.watch import ledger_of
from tests.support import postgres

RECORD = Path(__file__).with_name("record.sql").read_text()


async def burn(fire: Fire, seconds: float, drain: float) -> int:
    try:
        await fire.burn(seconds)
        return await fire.drain(drain)
    finally:
        await fire.stop()


def run(seconds: float, seed: int, broken: str = "", drain: float = DRAIN_SECONDS) -> list[Check]:
    """Burn, and print what was done and found. Return the checks."""
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="leasework-fire-") as folder,
        postgres.server(settings=SERVER) as server,
        postgres.database(server.dsn) as dsn,
    ):
        asyncio.run(migrate.apply(Settings(dsn=dsn)))
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(SETUP.encode())
            connection.execute(RECORD.encode())
            apply_to_database(broken, connection)
        fire = Fire(dsn, Path(folder), broken, random.Random(seed))
        left = asyncio.run(burn(fire, seconds, drain))
        with psycopg.connect(dsn, autocommit=True) as connection:
            history = History(connection, fire.tally, ledger_of(fire))
    checks = [
        Check("suspended jobs, while it burned", fire.suspended, fire.asleep, 50),
        Check("limits with more suspended jobs than may run", fire.beyond),
        *judge(history, left),
    ]
    report(fire, history, checks, time.monotonic() - began)
    return checks


def report(fire: Fire, history: History, checks: list[Check], took: float) -> None:
    tally = fire.tally
    print(f"done in {took:.0f} s: " + ", ".join(f"{n} {what}" for what, n in tally.did.items()))
    made = len({e.row["id"] for e in history.of("made")})
    print(f"{made} jobs, {len(history.claims)} claims, {len(history.of('step'))} changes of steps")
    for check in checks:
        said = "ok" if check.ok else f"{len(check.found)} VIOLATIONS" if check.found else "TOO FEW"
        print(f"  {said:>15}  {check.name}: {check.looked_at} looked at")
        for each in check.found[:3]:
            print(f"                   {each}")
    for error, times in sorted({e: tally.errors.count(e) for e in tally.errors}.items())[:10]:
        print(f"  error, {times} times: {error}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.durable_fire")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--drain", type=float, default=DRAIN_SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broken", default="", choices=sorted(BY_NAME), metavar="NAME")
    parser.add_argument("--list", action="store_true", help="list the broken builds")
    given = parser.parse_args()
    if given.list:
        for build in BUILDS:
            print(f"{build.name:15} {build.takes_out}")
        return 0
    checks = run(given.seconds, given.seed, given.broken, given.drain)
    # a short drain of a slow machine is no proof
    caught = [c.name for c in checks if c.found and c.name != ENDED]
    if given.broken:
        print(f"{given.broken}: {'caught by ' + ', '.join(caught) if caught else 'NOT CAUGHT'}")
        return 0 if caught else 1
    return 0 if all(check.ok for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
