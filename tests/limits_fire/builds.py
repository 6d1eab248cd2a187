"""Builds with one protection taken out. The oracle must catch each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import psycopg

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Build:
    """``function``: pairs of texts in leasework.claim_limited; ``sql``: in statements."""

    name: str
    takes_out: str
    function: Pairs = ()
    sql: tuple[tuple[str, Pairs], ...] = ()


_LOOKED = """looked := (select jsonb_agg(to_jsonb(r)) from leasework.rooms(keys, clk) r);
            perform pg_sleep(0.002);
            if cardinality(keys) > 0 then"""
_FROM_LOOK = """from (
                select x.* from jsonb_to_recordset(looked) as x
                    (key text, slots float8, tokens float8, rate float8, burst float8, opens float8)
                where x.key = any (locked)
                union all
                select x.* from leasework.rooms(locked, clk) x
                where x.key not in (select l ->> 'key' from jsonb_array_elements(looked) l)) r
        ), best"""  # fmt: skip
_BACK = "set ready = j.lane is null, held_because = case when j.lane is not null then 'limit' end"

BUILDS = (
    Build(
        "no-lock", "claims do not lock the keys",
        ((r"where k\.key = any \(keys\) for no key update skip locked", "where k.key = any (keys)"),
         (r"clk := clock_timestamp\(\);\n(\s+with room)",
          r"clk := clock_timestamp();\n perform pg_sleep(0.002);\n\1")),
    ),
    Build(
        "first-look", "the rooms are those counted before the keys were locked",
        ((r"timeline bigint;", "timeline bigint; looked jsonb;"),
         (r"if cardinality\(keys\) > 0 then", _LOOKED),
         (r"from leasework\.rooms\(locked, clk\) r\n\s+\), best", _FROM_LOOK)),
    ),
    Build(
        "no-charge", "tokens are not charged",
        ((r"tokens = r\.tokens - u\.cost", "tokens = r.tokens"),),
    ),
    Build(
        "no-cost", "each start costs one token, whatever its cost",
        ((r"sum\(coalesce\(b\.costs\[k\.o\], 1\)\) over w as cost", "count(*) over w as cost"),
         (r"sum\(coalesce\(j\.costs\[o\], 1\)\) as cost", "count(*) as cost")),
    ),
    Build(
        "foreign-lanes", "jobs are taken from lanes whose keys are not all locked here",
        ((r"and leasework\.lane_keys\(l\.lane\) <@ coalesce\(locked, '\{\}'(::text\[\])?\)", ""),),
    ),
    Build(
        "back-ready", "rescue and give-back make a limited job available to every claim",
        sql=(("job/_back", ((_BACK, "set ready = true, held_because = null"),)),),
    ),
    Build(
        "stage-ready", "a retry that is due is available to every claim",
        sql=(("job/stage", (
            ("set ready = lane is null, held_because = case when lane is not null then 'limit' end",
             "set ready = true, held_because = null"),)),),
    ),
    Build(
        "newest-first", "the newest job of a lane runs first",
        ((r"order by leasework\.level\(j\.priority, j\.fresh\), j\.seat limit",
          "order by leasework.level(j.priority, j.fresh), j.seat desc limit"),),
    ),
    Build(
        "hints-only", "claims look only into lanes in which a job has just ended",
        ((r"walked := cardinality\(seen\);", "seen := '{}'; walked := 0;"),),
    ),
    Build(
        "not-throttled", "a throttled key goes on",
        ((r"case when r\.opens > 0 then 0 else r\.slots end as slots", "r.slots as slots"),),
    ),
    Build(
        "not-paused", "a claim does not read the paused queues",
        ((r"p\.kind = 'queue' and p\.name = of_queue", "false"),),
    ),
)  # fmt: skip
BY_NAME = {build.name: build for build in BUILDS}


def apply_to_statements(name: str) -> None:
    """Break the statements of this process. Ends it if a text is not there."""
    from tests.mutants.launch import break_statements

    if name:
        break_statements(dict(BY_NAME[name].sql))


def apply_to_function(name: str, connection: psycopg.Connection[Any]) -> None:
    """Break the function in the database."""
    if name and BY_NAME[name].function:
        break_function(connection, "claim_limited", BY_NAME[name].function)


def break_function(connection: psycopg.Connection[Any], function: str, pairs: Pairs) -> None:
    """Replace text of a function. Each text must be there."""
    row = connection.execute(
        "select pg_get_functiondef(p.oid) from pg_proc p where p.proname = %s "
        "and p.pronamespace = 'leasework'::regnamespace",
        [function],
    ).fetchone()
    assert row
    text = row[0]
    for old, new in pairs:
        text, count = re.subn(old, new, text)
        assert count, f"{function} has no {old!r}"
    connection.execute(text)
