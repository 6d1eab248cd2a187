"""``python launch.py MUTANT ORDERS``: a process of the campaign in a broken build."""

from __future__ import annotations

import json
import sys

EXIT_NO_MUTANT = 99


def break_statements(changes: dict[str, tuple[tuple[str, str], ...]]) -> None:
    """Replace text of statements; ends the process when that text is not there."""
    from leasehold.pg import sql

    broken = {}
    for name, pairs in changes.items():
        whole = text = sql.statement(name, "leasehold")
        for old, new in pairs:
            if old not in text:
                print(f"{name} has no {old!r}", file=sys.stderr)
                sys.exit(EXIT_NO_MUTANT)
            text = text.replace(old, new)
        broken[whole] = text
    sql.statement.cache_clear()
    for_schema = sql.for_schema
    sql.for_schema = lambda text, schema: for_schema(broken.get(text, text), schema)


def main() -> None:
    given = json.loads(sys.argv[2])
    sys.path[:] = given["path"]
    from tests.mutants.builds import BY_NAME

    mutant = BY_NAME[sys.argv[1]]
    break_statements(dict(mutant.sql))
    mutant.patch()
    from leasehold_lab.chaos.child import main as child

    child(given)


if __name__ == "__main__":
    main()
