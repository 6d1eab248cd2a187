"""Four roles to give to logins, and what each may: the one list that the script grants by, and
that the doctor compares a login with."""

from __future__ import annotations

from collections.abc import Iterator

from leasehold.errors import ConfigError, suggest

ENQUEUE, WORKER, OBSERVER, ADMIN = "enqueue", "worker", "observer", "admin"
ROLES = {
    ENQUEUE: "may enqueue jobs through leasehold.enqueue, and nothing else",
    WORKER: "takes part: elects, schedules, works, prunes; and acts as a person does",
    OBSERVER: "reads all tables and views, changes nothing",
    ADMIN: "owns the schema: migrations; and all that the others may",
}

_RW = "select insert update delete"
_TABLES = {
    "migration": "select",
    "node": _RW,
    "death": _RW,
    "leader": _RW,
    "fence": _RW,
    "term": "select insert",
    "bid": _RW,
    "release": "select insert update",
    "job": _RW,
    "job_done": _RW,
    "attempt": _RW,
    "job_key": _RW,
    "signal": _RW,
    "schedule": _RW,
    "tick": _RW,
    "deadline": _RW,
    "run_time": _RW,
    "event": "select insert delete",
    "history": _RW,
    "lock_name": _RW,
}
"""What a worker may with each table. TRUNCATE, REFERENCES and TRIGGER stay the owner's."""
_SEQUENCES = {"token_seq": "usage select"}
_VIEWS = (
    "jobs",
    "leaders",
    "nodes",
    "schedules",
    "ticks",
    "deadlines",
    "events",
    "locks",
    "workers",
)
_FUNCTIONS = {ENQUEUE: ["enqueue"], WORKER: ["enqueue", "partitions"], OBSERVER: []}
"""Functions that are not for everybody: they run with the owner's rights."""


def rights(role: str) -> list[tuple[str, str]]:
    """(name, privilege) of tables, views, sequences and functions (``execute``)."""
    return list(_rights(role))


def _rights(role: str) -> Iterator[tuple[str, str]]:
    if role in (WORKER, OBSERVER):
        for table, privileges in _TABLES.items():
            for privilege in privileges.split() if role == WORKER else ["select"]:
                yield table, privilege
        for view in _VIEWS:
            yield view, "select"
        for sequence, privileges in _SEQUENCES.items():
            for privilege in privileges.split() if role == WORKER else ["select"]:
                yield sequence, privilege
    for function in _FUNCTIONS[role]:
        yield function, "execute"


def check_role(role: str) -> str:
    """Raises ConfigError for what is none of :data:`ROLES`."""
    if role not in ROLES:
        raise ConfigError("no such role", got=role, do=suggest(role, ROLES))
    return role
