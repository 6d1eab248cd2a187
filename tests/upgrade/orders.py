"""The two orders of an upgrade, each of them forward and back."""

from __future__ import annotations

import json

from tests.support.wait import NeverHappened, until
from tests.upgrade.fleet import START_SECONDS, WORKERS, Fleet
from tests.upgrade.versions import Version

MIGRATIONS = "select number, name, min_known from leasework.migration order by 1"
SAYS = "leasework schema apply"


def apply_schema(fleet: Fleet, old: Version, new: Version) -> None:
    """Apply the new schema. The old command changes nothing in it."""
    fleet.phase("the schema is applied")
    status, said = fleet.command(new, "schema", "apply")
    fleet.expect("the new schema apply", status == 0, said)
    have = fleet.sql(MIGRATIONS)
    fleet.expect("the schema has the migrations", [row[0] for row in have] == new.migrations, have)
    status, said = fleet.command(old, "schema", "apply")
    fleet.expect("the old schema apply changes nothing",
                 status == 0 and fleet.sql(MIGRATIONS) == have, said)  # fmt: skip


def problems(fleet: Fleet, version: Version) -> set[str]:
    """The kinds of problems that status reports, as this version's command says."""
    status, said = fleet.command(version, "status", "--json")
    try:
        return {problem["kind"] for problem in json.loads(said)["problems"]}
    except (ValueError, KeyError, TypeError):
        fleet.expect("status --json answers", False, f"{status}: {said[-300:]}")
        return set()


def roll(fleet: Fleet, to: Version, seconds: float, told_by: Version) -> None:
    """Replace workers one by one, and the enqueuer after the first of them."""
    for number in range(WORKERS):
        fleet.replace(number, to)
        if number == 0:
            fleet.replace_enqueuer(to)
            found = problems(fleet, told_by)
            fleet.expect("status reports versions_differ", "versions_differ" in found, found)
        fleet.run(seconds / WORKERS)


def forward_and_back(fleet: Fleet, old: Version, new: Version, share: float) -> None:
    fleet.phase("workers become new, one by one")
    roll(fleet, new, share, old)
    fleet.phase("the new version alone")
    fleet.run(share)
    status, said = fleet.command(new, "schema", "verify")
    fleet.expect("the new schema verify finds no difference", status == 0, said[-300:])
    fleet.phase("workers become old, one by one")
    roll(fleet, old, share, new)
    fleet.phase("the old version alone, on the new schema")
    fleet.run(share)


def schema_first(fleet: Fleet, old: Version, new: Version, seconds: float) -> None:
    share = seconds / 6
    fleet.phase("the old version, on its schema")
    fleet.begin(old)
    fleet.run(share)
    apply_schema(fleet, old, new)
    fleet.phase("the old version, on the new schema")
    fleet.run(share)
    forward_and_back(fleet, old, new, share)


def code_first(fleet: Fleet, old: Version, new: Version, seconds: float) -> None:
    """The wrong order: new processes refuse, and old ones go on, until the schema is applied."""
    share = seconds / 6
    fleet.phase("the old version, on its schema")
    fleet.begin(old)
    fleet.run(share)
    fleet.phase("a new worker, on the old schema")
    fleet.replace(0, new, refuses=True)
    producer = fleet.start(new, "producer", "application.py", "once")
    fleet.logs.remove(producer)
    status = producer.wait(START_SECONDS)
    fleet.expect("a new process cannot enqueue on the old schema",
                 status != 0 and SAYS in producer.output, producer.tail(3))  # fmt: skip
    fleet.run(share)

    def has_refused() -> bool:
        fleet.supervise()
        return bool(fleet.refused)

    try:
        until(has_refused, START_SECONDS, "the new worker to refuse", every=0.2)
    except NeverHappened as error:
        fleet.expect("the new worker refuses the old schema", False, error)
    for said in fleet.refused:
        fleet.expect(
            "the refusal names the command", SAYS in said and "ended with 1:" in said, said
        )
    apply_schema(fleet, old, new)
    first = fleet.members[0]

    def is_up() -> bool:
        fleet.supervise()
        return first.up

    try:
        until(is_up, START_SECONDS, "the new worker to start", every=0.2)
    except NeverHappened as error:
        fleet.expect("the new worker starts once the schema is applied", False, error)
    first.must_refuse = False
    forward_and_back(fleet, old, new, share)


def orders_between(old: Version, new: Version) -> tuple[str, ...]:
    """Without a migration between the versions, there is only one order."""
    return tuple(ORDERS) if new.migrations > old.migrations else tuple(ORDERS)[:1]


ORDERS = {"the schema first": schema_first, "the code first": code_first}
