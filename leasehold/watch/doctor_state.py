"""The doctor's checks of the database's state and of the nodes."""

from __future__ import annotations

from collections.abc import Iterator

from leasehold.config import FULL_SHARE, Settings
from leasehold.ports.doctor import Examination
from leasehold.watch.advice import recommended, worst_gap, worst_trip
from leasehold.watch.facts import bloated
from leasehold.watch.finding import OK, WRONG, Finding, quoted


def connections(found: Examination, settings: Settings) -> Iterator[Finding]:
    server = found.server
    ours = sum(found.connections.values())
    each = 1 + settings.work_connections  # the guard's
    takes = f"a node holds {each}, and up to {settings.user_connections + 2} more on demand"
    words = (
        f"{server['used']} of {server['most']} connections are in use, {ours} of them by nodes; "
        f"{takes}"
    )
    limits = [
        ("the server", "max_connections", server["used"], server["most"]),
        (f"role {server['role']!r}", "role", server["role_used"], server["role_most"]),
        (
            f"database {server['database']!r}",
            "database",
            server["database_used"],
            server["database_most"],
        ),
    ]
    full = [(who, what, used, most) for who, what, used, most in limits if _nearly(used, most)]
    for who, what, used, most in full:
        role, database = quoted(server["role"]), quoted(server["database"])
        do = {
            "role": f"In psql: alter role {role} connection limit {most * 2}",
            "database": f"In psql: alter database {database} connection limit {most * 2}",
        }.get(
            what, f"In psql: alter system set max_connections = {most * 2}; then restart the server"
        )
        yield Finding(
            "connections",
            WRONG,
            f"{used} of the {most} connections of {who} are in use; {takes}",
            f"{do}; or put a pooler in front",
        )
    if not full:
        yield Finding("connections", OK, words)


def _nearly(used: int, most: int) -> bool:
    return most > 0 and used >= most * FULL_SHARE


def vacuum(found: Examination, settings: Settings) -> Iterator[Finding]:
    if found.settings.get("autovacuum") == "off":
        yield Finding(
            "autovacuum",
            WRONG,
            "autovacuum is off: job tables grow without limit, and claims become slow",
            "In psql: alter system set autovacuum = on; select pg_reload_conf()",
        )
        return
    late = [row for row in found.tables if bloated(row)]
    for row in late:
        yield Finding(
            "autovacuum",
            WRONG,
            f"Table {row.name} has {row.dead:,} dead rows beside {row.live:,} live ones: "
            "autovacuum does not keep up, or is held back by an open transaction",
            f"In psql: vacuum (verbose) {settings.schema}.{row.name}; see also xmin_pinned",
        )
    if found.tables and not late:
        yield Finding("autovacuum", OK, "autovacuum is on and keeps up")


# -- the nodes -------------------------------------------------------------------------------------
def leases(found: Examination) -> Iterator[Finding]:
    leases = sorted({float(row.lease_seconds) for row in found.nodes})
    if len(leases) > 1:
        yield Finding(
            "recover_within",
            WRONG,
            "Nodes have different leases: " + ", ".join(f"{lease:g} s" for lease in leases),
            "Give all the same recover_within (LEASEHOLD_RECOVER_WITHIN)",
        )


def time(found: Examination, settings: Settings) -> Iterator[Finding]:
    clocks = found.clocks
    if not clocks.round_trips:
        return
    wanted = recommended(found, settings.recover_within)
    seen = f"round trips up to {worst_trip(found) * 1000:.1f} ms"
    gap = worst_gap(found)
    if gap is not None:
        seen += f", renewals up to {gap:.1f} s apart"
    seen += f" in {clocks.watched:.1f} s"
    fenced = found.trouble.get("node_fenced", 0)
    if fenced:
        seen += f", {fenced} nodes fenced in a day"
    set_to = f"recover_within is {settings.recover_within:g} s"
    if wanted.seconds > settings.recover_within:
        yield Finding(
            "recover_within",
            WRONG,
            f"{set_to}, which is tight: {seen}; {wanted.why}",
            f"LEASEHOLD_RECOVER_WITHIN={wanted.seconds:g} in every process",
        )
    else:
        yield Finding(
            "recover_within",
            OK,
            f"{set_to}; {wanted.least:g} s or more would be safe, judging by {seen}",
        )
