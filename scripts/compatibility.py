"""Writes the table of docs/howto/upgrade.md that says which version works with which schema, from
the table of versions above it, whose migrations tests compare with the code.

python -m scripts.compatibility
"""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "upgrade.md"
WORKS, BEHIND, AHEAD = "works", "`SchemaTooOld`", "`SchemaTooNew`"
_ROW = re.compile(r"^\| (\d+\.\d+\.\d+) \| ([\d, -]+) \| (\d+) \| ([^|]+) \|", re.M)
_MADE = re.compile(r"(<!-- compatibility -->\n).*?(<!-- end -->)", re.S)
Versions = dict[str, tuple[list[int], int, str]]


def rows(page: str) -> Versions:
    """By version: its migrations, ``min_known`` after them, and what old processes may do."""
    return {
        version: ([int(n) for n in re.findall(r"\d+", numbers)], int(known), old.strip())
        for version, numbers, known, old in _ROW.findall(page)
    }


def verdict(known: int, number: int, min_known: int) -> str:
    """What a process that knows migrations up to ``known`` does with a schema that has them up to
    ``number``: the rule of ``check_schema`` in leasework/pg/connection/pool.py."""
    if number < known:
        return BEHIND
    return AHEAD if min_known > known else WORKS


def table(versions: Versions) -> str:
    newest = 0
    schemas = {}
    for version, (numbers, min_known, _) in versions.items():
        newest = max([newest, *numbers])
        schemas[version] = newest, min_known
    heads = ["processes of", *[f"schema of {version}" for version in schemas]]
    lines = [heads, ["---"] * len(heads)]
    for version, (known, _) in schemas.items():
        lines.append([version, *[verdict(known, *schema) for schema in schemas.values()]])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def made(page: str) -> str:
    return _MADE.sub(lambda m: f"{m[1]}\n{table(rows(page))}\n{m[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text("utf-8")), "utf-8")
