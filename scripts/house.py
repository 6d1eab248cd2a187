"""Measures the shape of the core, and fails where it exceeds a limit.

python -m scripts.house            # the figures; exit status 1 when one exceeds its limit
python -m scripts.house --list     # and what they are made of
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = ROOT / "leasework"
SHOWN = 12


@dataclass(frozen=True)
class Figure:
    """One measure, its limit, and what it is made of, the largest first."""

    name: str
    value: int
    limit: int
    parts: list[str]

    @property
    def kept(self) -> bool:
        return self.value <= self.limit


def modules() -> dict[str, Path]:
    """By dotted name; a package's name is that of its ``__init__``."""
    found = {}
    for path in sorted(CORE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def lines_of(pattern: str) -> list[tuple[int, str]]:
    files = [p for p in CORE.rglob(pattern) if "__pycache__" not in p.parts]
    counted = [(len(p.read_text("utf-8").splitlines()), p.relative_to(ROOT)) for p in files]
    return [(count, str(path)) for count, path in sorted(counted, reverse=True)]


def functions() -> list[tuple[int, str]]:
    found = []
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                found.append((length, f"{name}.{node.name}"))
    return sorted(found, reverse=True)


def folders() -> list[tuple[int, str]]:
    """Modules in each folder, ``__init__`` apart."""
    sizes = Counter(p.parent.relative_to(ROOT) for p in modules().values() if p.stem != "__init__")
    return sorted(((count, str(folder)) for folder, count in sizes.items()), reverse=True)


def shared_class_names() -> list[str]:
    """Names of public classes that stand in more than one module."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    return [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if where[1:]]


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the core that a module imports, anywhere in it: at the top, inside functions,
    and for type checkers alone."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module


def cycles() -> list[list[str]]:
    """Groups of modules that import each other, directly or not (Tarjan's algorithm)."""
    known = modules()
    edges = {
        name: {other for other in imports(name, path, known) if other != name}
        for name, path in known.items()
    }
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in edges[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            cut = stack.index(name)
            group, stack[cut:] = stack[cut:], []
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for name in edges:
        if name not in index:
            visit(name)
    return found


def told(found: list[tuple[int, str]]) -> list[str]:
    return [f"{count:6,}  {what}" for count, what in found[:SHOWN]]


def figures() -> list[Figure]:
    python, sql, made = lines_of("*.py"), lines_of("*.sql"), functions()
    rooms, shared, knots = folders(), shared_class_names(), cycles()
    return [
        Figure("lines of Python", sum(n for n, _ in python), 34_000, told(python)),
        Figure("lines of SQL", sum(n for n, _ in sql), 5_500, told(sql)),
        Figure("longest file, lines", python[0][0], 600, told(python)),
        Figure("longest function, lines", made[0][0], 60, told(made)),
        Figure("modules in the biggest folder", rooms[0][0], 20, told(rooms)),
        Figure("class names used twice", len(shared), 3, shared),
        Figure("import cycles", len(knots), 0, [" <-> ".join(knot) for knot in knots]),
    ]


def main() -> int:
    found = figures()
    for figure in found:
        mark = "" if figure.kept else "  EXCEEDED"
        print(f"{figure.name:32} {figure.value:7,}  limit {figure.limit:7,}{mark}")
        if "--list" in sys.argv or not figure.kept:
            print("".join(f"    {part}\n" for part in figure.parts), end="")
    return 0 if all(figure.kept for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
