"""The doctor: a pure function from an examination to findings, each with a command to type.

Nothing here queries a database; see pg/schema/examination.py. The doctor judges what the
application stands on; :mod:`leasehold.watch.checks` judges the running application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from leasehold.config import Settings
from leasehold.errors import shorten
from leasehold.ports.doctor import Examination
from leasehold.watch import doctor_link, doctor_state
from leasehold.watch.checks import database_problem
from leasehold.watch.finding import NOTE, OK, WRONG, Finding, quoted


def findings(found: Examination, settings: Settings, role: str) -> list[Finding]:
    """The findings, in the order of the checks. ``role``: what the login is for (``worker``,
    ``enqueue``, ``observer``)."""
    if found.error is not None and not found.server:
        return [database_problem(found.error)]
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        lambda: _server(found),
        lambda: _role(found, role, settings),
        lambda: _schema(found),
        lambda: doctor_link.pooler(found, settings),
        lambda: doctor_link.listen(found, settings),
        lambda: doctor_link.timeline(found),
        lambda: doctor_link.durability(found),
        lambda: doctor_link.isolation(found),
        lambda: doctor_link.limits(found),
        lambda: doctor_link.link(found),
        lambda: doctor_link.clock(found),
        lambda: doctor_state.connections(found, settings),
        lambda: doctor_state.vacuum(found, settings),
        lambda: doctor_state.leases(found),
        lambda: doctor_state.time(found, settings),
    )
    told = [finding for check in checks for finding in check()]
    if found.error is not None:
        problem = database_problem(found.error)
        told.append(replace(problem, sentence=f"{problem.sentence} (midway)"))
    return told


# -- who and where ---------------------------------------------------------------------------------
def _server(found: Examination) -> Iterator[Finding]:
    server = found.server
    version = server["version"]
    name = f"PostgreSQL {version // 10000}.{version % 10000}"
    if version < 150000:
        yield Finding("server", WRONG, f"{name} is too old", "Upgrade the server to 15 or newer")
    elif server["recovering"] or server["read_only"]:
        yield Finding(
            "server",
            WRONG,
            f"{name} is a replica, or read-only: nothing can be claimed, led or enqueued there",
            "Give the primary's address, or add target_session_attrs=read-write to the DSN",
        )
    else:
        where = f"database {server['database']!r} as {server['role']!r}"
        yield Finding("server", OK, f"{name}, {where}")
    if not (server["encrypted"] or server["local"]):
        yield Finding(
            "encryption",
            NOTE,
            "The connection is not encrypted: others on the network can read password hashes, "
            "arguments and results",
            "Add sslmode=verify-full (and sslrootcert=…) to the DSN",
        )


def _role(found: Examination, role: str, settings: Settings) -> Iterator[Finding]:
    login = found.server["role"]
    if found.server["superuser"]:
        yield Finding(
            "privileges",
            NOTE,
            f"{login!r} is a superuser: whoever gets hold of this DSN owns the server",
            "leasehold schema sql --roles | psql; then give the application a login that is a "
            f"member of {settings.schema}_{role}",
        )
        return
    denied = found.denied.get(role, [])
    if denied:
        more = f" and {len(denied) - 4} more" if len(denied) > 4 else ""
        yield Finding(
            "privileges",
            WRONG,
            f"{login!r} lacks what a {role} needs: {', '.join(denied[:4])}{more}",
            "leasehold schema sql --roles | psql; then: "
            f"grant {settings.schema}_{role} to {quoted(login)}",
        )
    elif role in found.denied:
        may = [name for name, lacks in found.denied.items() if not lacks]
        yield Finding("privileges", OK, f"{login!r} has the privileges of: {', '.join(may)}")


def _schema(found: Examination) -> Iterator[Finding]:
    if found.schema_number is None and "schema" not in found.skipped:
        yield Finding(
            "schema", WRONG, "The database has no leasehold schema", "leasehold schema apply"
        )
        return
    if "drift" in found.skipped:
        yield Finding(
            "schema",
            NOTE,
            f"The schema was not compared with a fresh one: {found.skipped['drift']}",
            "leasehold schema verify, as a role that may create a schema in this database",
        )
    elif found.differences:
        first = "; ".join(shorten(line, 160).strip("'") for line in found.differences[:2])
        yield Finding(
            "schema",
            WRONG,
            f"The schema differs from a fresh one in {len(found.differences)} places: {first}",
            "leasehold schema verify lists every difference. Undo manual changes by hand, and run "
            "leasehold schema apply for missing migrations",
        )
    elif found.schema_number:
        yield Finding("schema", OK, "The schema is the one that this version creates")
