"""Every statement of a node's finds its rows by the indexes that stand above it: in the plan that
PostgreSQL keeps for it, made for empty tables. Above it stands, too, where a whole table is read
("a scan of"), or an index without a condition: "(all of it)", or "(in order)" until there is
enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

from leasework.config import Settings
from leasework.pg.connection.session import Session
from leasework.pg.sql import query

FOLDER = Path(str(files("leasework.pg"))) / "sql"
ELSEWHERE = {"bench", "chaos", "demo", "doctor", "migrations", "user"}
"""Folders of what is sent in sessions with other settings."""
READ_ALL = {"Sort", "Aggregate", "Hash", "WindowAgg", "Unique", "ModifyTable"}
"""Below these a limit ends nothing."""
NOBODY = UUID(int=0)
ASIDE = {"history/roll_up", "status/finished"}
UNPLANNED = {"job/copy", "job/copy_batch"}
RELATIONS = """
select c.relname, coalesce(p.relname, c.relname), t.relname,
       (select attname from pg_attribute a where a.attrelid = i.indexrelid and a.attnum = 1)
from pg_class c
left join pg_inherits on inhrelid = c.oid
left join pg_class p on p.oid = inhparent
left join pg_index i on i.indexrelid = coalesce(p.oid, c.oid)
left join pg_class t on t.oid = i.indrelid
where c.relnamespace = 'leasework'::regnamespace and c.relkind in ('r', 'p', 'i', 'I')
"""


class Relation(NamedTuple):
    """A table or an index; of a partition's, those of the whole."""

    name: str
    table: str | None
    first: str | None
    """Column of an index."""


Relations = dict[str, Relation]


@dataclass
class Header:
    """What is named above a statement."""

    indexes: set[str]
    in_order: set[str]
    """Of these, read from one end on until there is enough."""
    all_of: set[str]
    """Indexes and tables."""

    @classmethod
    def of(cls, name: str) -> Header:
        text = (FOLDER / f"{name}.sql").read_text("utf-8")
        [named] = re.findall(r"^-- index: (.*)", text, re.M)
        scans = " ".join(re.findall(r"\bscans? of ([\w, ]+)", named))
        return cls(
            set(re.findall(r"\b[a-z]+_[a-z_0-9]+\b", named)),
            set(re.findall(r"(\w+) \(in order\)", named)),
            {*re.findall(r"(\w+) \(all of it\)", named), *re.findall(r"\w+", scans)},
        )

    def lacks(self, node: Node, relations: Relations) -> str | None:
        """What this node of a plan reads and the header does not say."""
        plan = node.plan
        if plan.get("Schema", "leasework") != "leasework":
            return None
        if plan["Node Type"] == "Seq Scan":
            table = relations[plan["Relation Name"]].name
            return None if table in self.all_of else f"all of {table}"
        if "Index Name" not in plan:
            return None
        index = relations[plan["Index Name"]]
        if index.table in self.all_of:  # in place of a scan
            return None
        if index.name not in self.indexes:
            return index.name
        if re.search(rf"\b{index.first}\b", plan.get("Index Cond", ""), re.I):
            return None
        enough = index.name in self.in_order and node.limited
        return None if enough or index.name in self.all_of else f"all of {index.name}"


class Node(NamedTuple):
    plan: dict[str, Any]
    limited: bool
    """Asked for so many rows only."""


def steady() -> list[str]:
    names = (str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("[!_]*.sql"))
    apart = ASIDE | UNPLANNED
    return sorted(n for n in names if n.partition("/")[0] not in ELSEWHERE and n not in apart)


def nodes(plan: dict[str, Any], limited: bool = False) -> Iterator[Node]:
    limited = plan["Node Type"] == "Limit" or (limited and plan["Node Type"] not in READ_ALL)
    yield Node(plan, limited)
    for part in plan.get("Plans", ()):
        yield from nodes(part, limited and part["Parent Relationship"] in ("Outer", "Member"))


@pytest.fixture
async def relations(sql: Any) -> Relations:
    return {name: Relation(*more) for name, *more in await sql(RELATIONS)}


async def plan_of(session: Session, name: str) -> Iterator[Node]:
    """Of a statement for whatever its values are."""
    statement = query(name, "leasework")
    values = f"({', '.join(['null'] * len(statement.names))})" if statement.names else ""
    run = session.connection.execute
    await run(b"prepare looked_at as " + statement.text)
    [[[found]]] = await (
        await run(f"explain (format json, verbose) execute looked_at{values}".encode())
    ).fetchall()
    await run("deallocate looked_at")
    return nodes(found["Plan"])


async def test_every_statement_finds_its_rows_by_the_indexes_above_it(
    migrated: str, relations: Relations
) -> None:
    session = await Session.open(Settings(dsn=migrated), "work")
    await session.connection.execute("set plan_cache_mode = force_generic_plan")
    wrong = {
        f"{name}: {lack}"
        for name in steady()
        for header in [Header.of(name)]
        for node in await plan_of(session, name)
        if (lack := header.lacks(node, relations))
    }
    await session.close()
    assert not wrong, "\n".join(sorted(wrong))


def test_every_index_that_a_header_names_is_there(relations: Relations) -> None:
    known = {relation.name for relation in relations.values()}
    for path in FOLDER.rglob("[!_]*.sql"):
        name = str(path.relative_to(FOLDER).with_suffix(""))
        if name.partition("/")[0] not in ELSEWHERE - {"user"}:
            assert Header.of(name).indexes <= known, name


@pytest.mark.parametrize(
    ("statement", "lack"),
    [
        ("select from leasework.job where ready and queue = 'q'", "job_ready"),
        ("select from leasework.job order by id", "all of job_pkey"),
        ("select from leasework.job order by id limit 1", None),
        ("select from leasework.attempt where claim_token = 1", "all of attempt_pkey"),
        (f"select from leasework.attempt where job_id = '{NOBODY}'", None),
        ("select from leasework.job where attempt = 1", "all of job"),
        ("select from leasework.node where id = gen_random_uuid()", None),
    ],
)
async def test_what_is_not_named_is_seen(
    sql: Any, relations: Relations, statement: str, lack: str | None
) -> None:
    await sql("set enable_seqscan = off")
    await sql("set enable_bitmapscan = off")
    [[[found]]] = await sql(f"explain (format json, verbose) {statement}")
    header = Header({"job_pkey", "attempt_pkey"}, {"job_pkey"}, {"node"})
    assert (
        next(filter(None, (header.lacks(n, relations) for n in nodes(found["Plan"]))), None) == lack
    )


async def test_a_guard_plans_its_heartbeat_once(migrated: str) -> None:
    """A heartbeat's generic plan looks more expensive than one for its values."""
    session = await Session.open(Settings(dsn=migrated), "guard")
    beat: dict[str, Any] = {
        "node": NOBODY,
        "token": 1,
        "info": Jsonb({}),
        "now": None,
        "settles": 0,
    }
    held: dict[str, list[Any]] = {"held_leader": [], "held_token": []}
    lists: dict[str, list[Any]] = {**held, "watched": ["shop"]}
    lists |= {"heard_job": [], "heard_token": [], "heard_kind": []}
    for _ in range(20):
        await session.fetch("node/heartbeat", {**beat, **lists}, 30)
    plans = "select generic_plans > 0, custom_plans from pg_prepared_statements"
    assert await (await session.connection.execute(plans)).fetchall() == [(True, 0)]
    await session.close()
