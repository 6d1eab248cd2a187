"""The rules for SQL, as functions from text to a list of offences (empty: all is well)."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

KEYS = ("edge", "locks", "index", "token")
EDGE = re.compile(r"^--\s*edge:\s*(\w+)\s*->\s*(\w+)\s*$")

# -- text ------------------------------------------------------------------------------------
_TOKENS = re.compile(
    r"""
      (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<string>  \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | [eE]'(?:[^'\\]|''|\\.)*' | '(?:[^']|'')*' )
    | (?P<name>    "(?:[^"]|"")*" )
    """,
    re.VERBOSE | re.DOTALL,
)


def without_comments(sql: str) -> str:
    return _TOKENS.sub(lambda m: " " if m["comment"] else m[0], sql)


def bare(sql: str) -> str:
    """The text without comments, and with strings and quoted names emptied."""
    return _TOKENS.sub(lambda m: " " if m["comment"] else "''" if m["string"] else '""', sql)


def statements(sql: str) -> list[str]:
    return [part for part in bare(sql).split(";") if part.strip()]


# -- the header ------------------------------------------------------------------------------
@dataclass
class Header:
    purpose: str = ""
    entries: dict[str, list[str]] = field(default_factory=dict)
    offences: list[str] = field(default_factory=list)

    @property
    def edges(self) -> list[tuple[str, str]]:
        return [(a, b) for a, _, b in (e.partition(" -> ") for e in self.entries.get("edge", []))]


def header_lines(sql: str) -> list[str]:
    lines = []
    for line in sql.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line)
    return lines


def read_header(sql: str) -> Header:
    """Line one is the purpose; then ``-- edge:``, ``-- locks:``, ``-- index:``, ``-- token:``."""
    header = Header()
    for number, line in enumerate(header_lines(sql)):
        key, colon, value = line[2:].strip().partition(":")
        if number == 0:
            header.purpose = "" if colon and key in KEYS else line[2:].strip()
            continue
        if not colon:
            continue
        if key not in KEYS:
            near = difflib.get_close_matches(key.lower(), KEYS, n=1, cutoff=0.75)
            if near:
                header.offences.append(f"header key {key!r}: did you mean {near[0]!r}?")
            continue
        if key == "edge" and (match := EDGE.match(line)):
            value = f"{match[1]} -> {match[2]}"
        elif key == "edge":
            header.offences.append(f"not of the form `-- edge: a -> b`: {line}")
            continue
        header.entries.setdefault(key, []).append(value.strip())
    return header


def header_offences(sql: str) -> list[str]:
    header = read_header(sql)
    offences = list(header.offences)
    if not header.purpose:
        offences.append("the first line is not `-- what this statement is for`")
    for key in ("locks", "index"):
        if not any(header.entries.get(key, [])):
            offences.append(f"the header has no `-- {key}: …` line")
    reason = header.entries.get("token", ["none, because it needs none"])
    if not all(re.match(r"none, because \S", r) for r in reason):
        offences.append("the token line is not `-- token: none, because <reason>`")
    return offences


def statement_offences(sql: str) -> list[str]:
    found = len(statements(sql))
    return [] if found == 1 else [f"holds {found} statements, not one"]


# -- clocks ----------------------------------------------------------------------------------
_GIVEN_NOW = re.compile(
    r"coalesce\(\s*(?:%\(now\)s\s*(?:::\s*timestamptz\s*)?|cast\(%\(now\)s as timestamptz\)),"
    r"\s*(?:now|clock_timestamp|statement_timestamp)\s*\(\s*\)\s*\)",
    re.IGNORECASE,
)
_CLOCK = re.compile(
    r"\b(?:(?:now|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday)\s*\("
    r"|current_timestamp\b|current_date\b|current_time\b|localtimestamp\b|localtime\b)",
    re.IGNORECASE,
)
_CLOCK_WORD = re.compile(r"'(?:now|today|tomorrow|yesterday)'", re.IGNORECASE)


def clock_offences(sql: str) -> list[str]:
    code = _GIVEN_NOW.sub("", bare(sql))
    words = _CLOCK_WORD.findall(without_comments(sql))
    return [
        f"reads the clock by {found.strip('(').strip()}: "
        "write coalesce(%(now)s::timestamptz, now())"
        for found in [*_CLOCK.findall(code), *words]
    ]


# -- edges -----------------------------------------------------------------------------------
def edges_anywhere(sql: str) -> set[tuple[str, str]]:
    """All edges a file declares; a migration declares them beside the function that moves."""
    matches = (EDGE.match(line.strip()) for line in sql.splitlines())
    return {(m[1], m[2]) for m in matches if m}


def edge_offences(edges: Iterable[tuple[str, str]], table: Iterable[tuple[str, str]]) -> list[str]:
    """Edges to ``gone`` (a finished job is pruned) need no row in the table."""
    known = set(table)
    sources = {a for a, _ in known} | {b for _, b in known}
    return [
        f"edge {a} -> {b} is not in TRANSITIONS"
        for a, b in edges
        if (a, b) not in known and not (b == "gone" and a in sources - {"new"})
    ]


def token_offences(sql: str) -> list[str]:
    header = read_header(sql)
    leaves_running = any(a == "running" for a, _ in header.edges)
    if not leaves_running or "token" in header.entries:
        return []
    if re.search(r"\bclaim_token\b", bare(sql)):
        return []
    return ["moves a running job and does not name claim_token"]


# -- which method loads which file -------------------------------------------------------------
_REFERENCE = re.compile(r"(?:leasework_lab:)?[a-z][a-z0-9_]*/[a-z][a-z0-9_]*\Z")


def references(source: str) -> Iterator[tuple[str, int]]:
    """(``noun/verb``, line) for each string literal of that shape."""
    for node in ast.walk(ast.parse(source)):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and _REFERENCE.match(value):
            yield value, node.lineno


def reference_offences(files: set[str], sources: Mapping[str, str]) -> list[str]:
    """``files``: the existing ``noun/verb``; ``sources``: path -> Python text."""
    places: dict[str, list[str]] = {}
    for path, source in sources.items():
        for name, line in references(source):
            places.setdefault(name, []).append(f"{path}:{line}")
    offences = [f"{name}.sql is loaded by nobody" for name in sorted(files - places.keys())]
    for name, found in sorted(places.items()):
        if name not in files:
            offences.append(f"{found[0]}: {name}.sql does not exist")
        elif len(found) > 1:
            offences.append(f"{name}.sql is loaded in {len(found)} places: {', '.join(found)}")
    return offences
