"""Five roles to grant to logins, and the privileges of each. The script grants by this list, and
the doctor compares a login with it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from leasework.pg.schema.migrate import LOCK_KEY
from leasework.pg.sql import in_sql

ENQUEUE, WORKER, OPERATOR, OBSERVER, ADMIN = "enqueue", "worker", "operator", "observer", "admin"
ROLES = {
    ENQUEUE: "may enqueue jobs and batches and send signals, and nothing else",
    WORKER: "runs nodes, which elect, schedule, work and prune",
    OPERATOR: "may do all that a worker may, and records what people do",
    OBSERVER: "reads all tables and views, but changes nothing",
    ADMIN: "owns and migrates the schema; may do all that the others may",
}

_TABLES = {
    table: privileges
    for privileges, tables in {
        "select insert update delete": "node death leader fence bid job claimed_to job_done "
        "job_key limits limit_key weight pause signal stack step inbox batch schedule "
        "deadline silence tally total lock_name",
        "select insert update": "release history",
        "select insert delete": "term",
        "select insert": "event attempt tick",
        "select update delete": "repeated",
        "select update": "shared_begin",
        "select": "migration incarnation ended_session "
        "jobs leaders nodes schedules ticks deadlines events locks workers",  # views
    }.items()
    for table in tables.split()
}
"""A worker's privileges on tables and views. The owner keeps TRUNCATE, REFERENCES and TRIGGER."""
_SEQUENCES = {
    "token_seq": "usage select",
    "seat_seq": "usage select",
    "lift_seq": "usage select",
    "event_id_seq": "select",
    **{f"begin_{slot}": "select update" for slot in range(1, 17)},
}
_ENQUEUE = ["enqueue", "send_signal", "make_batch"]
_WORK = [*_ENQUEUE, "partitions", "prune_records", "note_timeline", "lift_tokens"]
_FUNCTIONS = {ENQUEUE: _ENQUEUE, WORKER: _WORK, OPERATOR: [*_WORK, "note_act"], OBSERVER: []}
"""Functions that are not open to everybody: they run with the owner's rights, or are a right."""


def rights(role: str) -> Iterator[tuple[str, str]]:
    """(name, privilege) for tables, views, sequences and functions (``execute``)."""
    if role != ENQUEUE:
        more = {"ended_session": "select insert update delete"} if role == OPERATOR else {}
        for name, privileges in {**_TABLES, **_SEQUENCES, **more}.items():
            for privilege in ["select"] if role == OBSERVER else privileges.split():
                yield name, privilege
    else:
        yield "migration", "select"  # a program first checks whether it fits the schema
    for function in _FUNCTIONS[role]:
        yield function, "execute"


def script(schema: str) -> str:
    """SQL that creates the roles, named after the schema, and grants them their :func:`rights`.
    Run it with psql as a role that may create roles. It can be run again with the same result."""
    names = {role: f"{schema}_{role}" for role in ROLES}
    givers = ", ".join(names[role] for role in _FUNCTIONS)
    quoted = in_sql(schema)
    lines = [
        "-- Roles to give to logins: grant " + names[WORKER] + " to your_login;",
        "-- You can run it again at any time. Run it after each `leasework schema apply`.",
        "begin;",
        "set local search_path = pg_catalog, pg_temp; -- nobody else's functions and operators",
        "-- One at a time, nor beside `leasework schema apply`: they change the same objects.",
        f"do $$ begin perform pg_advisory_xact_lock({LOCK_KEY}); end $$;",
        "-- It locks each table whose owner changes. If a lock is not free, run it again.",
        "set local lock_timeout = '2s';",
        *[_role(names[role], about) for role, about in ROLES.items()],
        _join(names[ADMIN]),
        _own(schema, names[ADMIN]),
        f"revoke all on schema {quoted} from public, {givers};",
        f"revoke all on all tables in schema {quoted} from public, {givers};",
        f"revoke all on all sequences in schema {quoted} from public, {givers};",
        *[
            f"revoke execute on function {quoted}.{_SIGNATURES[name]} from public, {givers};"
            for name in _SIGNATURES
        ],
        f"grant usage on schema {quoted} to {givers};",
    ]
    for role in _FUNCTIONS:
        lines += _grants(quoted, role, names[role])
    lines += [_statistics(names[OBSERVER]), _statistics(names[ADMIN]), "commit;", ""]
    return "\n".join(lines)


_SIGNATURES = {
    "enqueue": "enqueue(jsonb, timestamptz, boolean)",
    "partitions": "partitions(timestamptz, integer, integer)",
    "prune_records": "prune_records(jsonb, integer, timestamptz)",
    "note_act": "note_act()",
    "note_timeline": "note_timeline(bigint)",
    "lift_tokens": "lift_tokens()",
    "failed": "failed()",
    "succeeded": "succeeded()",
    "send_signal": "send_signal(uuid, text, jsonb, timestamptz, boolean)",
    "make_batch": "make_batch(uuid, jsonb, jsonb, timestamptz, boolean)",
}


def _grants(schema: str, role: str, name: str) -> Iterator[str]:
    """One statement per object, with all privileges on it."""
    for what, privileges in groupby(rights(role), key=itemgetter(0)):
        thing = f"{schema}.{_SIGNATURES.get(what, what)}"
        kind = "function " if what in _SIGNATURES else "sequence " if what in _SEQUENCES else ""
        yield f"grant {', '.join(p for _, p in privileges)} on {kind}{thing} to {name};"


def _role(name: str, about: str) -> str:
    return (
        f"do $$ begin if not exists (select 1 from pg_roles where rolname = '{name}') then\n"
        f"    create role {name} nologin;\n"
        f"    comment on role {name} is '{about}';\n"
        "end if; end $$;"
    )


def _join(admin: str) -> str:
    """Anyone but a superuser must be a member of the role to which they give the schema."""
    return (
        "do $$ begin if not (select rolsuper from pg_roles where rolname = current_user) then\n"
        f"    execute format('grant {admin} to %I', current_user);\n"
        "end if; end $$;"
    )


def _own(schema: str, admin: str) -> str:
    """Change the owner of the schema and everything in it. Columns' sequences follow the tables."""
    return f"""\
alter schema {in_sql(schema)} owner to {admin};
do $$ declare r record; begin
    for r in select c.oid::regclass as thing,
                    case c.relkind when 'S' then 'sequence' when 'v' then 'view'
                         else 'table' end as kind
             from pg_class c
             where c.relnamespace = '{schema}'::regnamespace and c.relkind in ('r', 'p', 'v', 'S')
               and c.relowner <> '{admin}'::regrole
               and not exists (select 1 from pg_depend d
                               where d.objid = c.oid and d.classid = 'pg_class'::regclass
                                 and d.deptype in ('a', 'i') and c.relkind = 'S')
    loop
        execute format('alter %s %s owner to {admin}', r.kind, r.thing);
    end loop;
    for r in select p.oid::regprocedure as thing from pg_proc p
             where p.pronamespace = '{schema}'::regnamespace and p.proowner <> '{admin}'::regrole
    loop
        execute format('alter function %s owner to {admin}', r.thing);
    end loop;
end $$;"""


def _statistics(name: str) -> str:
    """Let the role see other sessions' activity, for the database page and the doctor."""
    return (
        f"do $$ begin grant pg_read_all_stats to {name};\n"
        "exception when insufficient_privilege then\n"
        f"    raise notice 'pg_read_all_stats was not granted to {name}: ask a superuser';\n"
        "end $$;"
    )
