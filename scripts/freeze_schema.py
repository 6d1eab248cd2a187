"""Writes a file into tests/upgrade/released: the schema of the version that is being released, with
rows that it stored. Each later version is tested on it, and its migrations must stay as they are.

python -m scripts.freeze_schema          # once for each release with a migration: see RELEASING.md
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import psycopg

from leasework.config import Settings
from leasework.pg.schema import migrate
from leasework.version import VERSION
from tests.support import postgres
from tests.upgrade.sample import Sample

FOLDER = Path(__file__).parents[1] / "tests" / "upgrade" / "released"
SCHEMA = "leasework"
_TABLES = """
select c.relname, string_agg(quote_ident(a.attname), ', ' order by a.attnum)
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relnamespace = %s::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
and a.attgenerated = '' and c.relname <> 'migration' group by 1 order by 1
"""
_SEQUENCES = "select sequencename, last_value from pg_sequences where schemaname = %s order by 1"


def rows_of(connection: psycopg.Connection[tuple[object, ...]]) -> list[str]:
    """The statements that insert all rows and advance the sequences. No trigger runs."""
    made = ["set session_replication_role = replica;"]
    for table, columns in connection.execute(_TABLES, (SCHEMA,)).fetchall():
        name = f'{SCHEMA}."{table}"'
        read = f"select row_to_json(t)::text from (select {columns} from {name}) t"
        rows = [row[0] for row in connection.execute(read.encode()).fetchall()]
        made.append(f"delete from {name};")  # what a migration has inserted
        if rows:
            made.append(
                f"insert into {name} ({columns}) overriding system value select {columns} from "
                f"json_populate_recordset(null::{name}, $rows$[{','.join(map(str, rows))}]$rows$);"
            )
    for name, last in connection.execute(_SEQUENCES, (SCHEMA,)).fetchall():
        if last is not None:
            made.append(f"select setval('{SCHEMA}.{name}', {last});")
    return [*made, "reset session_replication_role;"]


def frozen(dsn: str) -> str:
    """Fill an empty database with the present version, and return it as SQL."""
    asyncio.run(migrate.apply(Settings(dsn=dsn)))
    asyncio.run(Sample(dsn).fill())
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set timezone to 'UTC'")  # the same file on each machine
        rows = rows_of(connection)
    told = json.dumps({"version": VERSION, "migrations": migrate.SCHEMA_NUMBER})
    return "\n".join([f"-- {told}", migrate.script(SCHEMA), *rows, ""])


def main() -> int:
    file = FOLDER / f"{VERSION}.sql"
    if file.exists():
        print(f"{file} exists: what is released never changes", file=sys.stderr)
        return 1
    with postgres.server() as server, postgres.database(server.dsn) as dsn:
        file.write_text(frozen(dsn), "utf-8")
    print(f"wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
