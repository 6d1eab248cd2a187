"""See the package."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from leasework.config import Settings
from leasework.pg.schema import migrate
from tests.limits_fire.builds import BUILDS, apply_to_function
from tests.limits_fire.faults import Fire
from tests.limits_fire.judge import Check, Record, judge
from tests.limits_fire.record import SETUP
from tests.limits_fire.watch import Watch, ledger_of
from tests.support import postgres
from tests.support.fires import DRAIN_SECONDS, SERVER, command, tell


async def burn(fire: Fire, seconds: float, drain: float) -> tuple[Watch, int]:
    watch = Watch(fire)
    watching = asyncio.create_task(watch.run())
    try:
        await fire.burn(seconds)
        left = await fire.drain(drain)
        watch.stopping = True
        await watching
    finally:
        watching.cancel()
        await fire.stop()
    return watch, left


def run(seconds: float, seed: int, broken: str, drain: float = DRAIN_SECONDS) -> list[Check]:
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
            apply_to_function(broken, connection)
        fire = Fire(dsn, Path(folder), broken, random.Random(seed))
        watch, left = asyncio.run(burn(fire, seconds, drain))
        with psycopg.connect(dsn, autocommit=True) as connection:
            record = Record(connection, fire.tally, ledger_of(fire))
    checks = [
        Check("F1, looks at what runs", watch.full, watch.over, 50),
        Check("F3, jobs that could run", watch.waits, watch.late, 50),
        *judge(record, left),
    ]
    report(fire, watch, record, checks, time.monotonic() - began)
    return checks


def report(fire: Fire, watch: Watch, record: Record, checks: list[Check], took: float) -> None:
    tally = fire.tally
    print(f"done in {took:.0f} s: " + ", ".join(f"{n} {what}" for what, n in tally.did.items()))
    print(
        f"{len(tally.committed)} jobs, {len(record.claims)} claims, {len(record.events)} events; "
        f"{watch.looks} looks, at most {watch.longest_gap:.2f} s apart, counted "
        f"{watch.keys_counted} keys, {watch.full} of them full; the longest wait of a job that "
        f"could run was {watch.longest:.2f} s"
    )
    tell(checks, tally.errors)


if __name__ == "__main__":
    sys.exit(command("tests.limits_fire", BUILDS, run))
