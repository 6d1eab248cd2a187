"""``python launch.py MUTANT ORDERS``: a process of the campaign in a broken build."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

EXIT_NO_MUTANT = 99


def break_statements(changes: Mapping[str, tuple[tuple[str, str], ...]]) -> None:
    """Replace text of statements, for every schema. End the process if a text is not there."""
    from leasework.pg import sql

    for name, pairs in changes.items():
        package, _, path = name.rpartition(":")
        texts = sql._texts(package or "leasework.pg")
        for old, new in pairs:
            if old not in texts[path]:
                print(f"{name} has no {old!r}", file=sys.stderr)
                sys.exit(EXIT_NO_MUTANT)
            texts[path] = texts[path].replace(old, new)
    sql.statement.cache_clear()
    sql.query.cache_clear()


def main() -> None:
    given = json.loads(sys.argv[2])
    sys.path[:] = given["path"]
    from tests.mutants.builds import BY_NAME

    mutant = BY_NAME[sys.argv[1]]
    break_statements(mutant.sql)
    mutant.patch()
    from leasework_lab.chaos.child import main as child

    child(given)


if __name__ == "__main__":
    main()
