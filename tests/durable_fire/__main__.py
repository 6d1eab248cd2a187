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
from tests.durable_fire.builds import BUILDS, apply_to_database
from tests.durable_fire.faults import Fire
from tests.durable_fire.judge import ENDED, History, judge
from tests.limits_fire.judge import Check
from tests.limits_fire.record import SETUP
from tests.limits_fire.watch import ledger_of
from tests.support import postgres
from tests.support.fires import DRAIN_SECONDS, SERVER, command, tell

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
    tell(checks, tally.errors)


if __name__ == "__main__":
    # a short drain of a slow machine is no proof
    sys.exit(command("tests.durable_fire", BUILDS, run, [ENDED]))
