"""The rules for Python, as functions from source text to (line, offence) pairs."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

Offences = list[tuple[int, str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef

MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 600
MAX_TEST_FILE_LINES = 600
LONGEST_SLEEP_SECONDS = 0.2  # this and more is sleep-and-hope

# -- SQL in Python -----------------------------------------------------------------------------
_THING = (
    r"(?:unlogged\s+|temp\s+|temporary\s+|unique\s+|materialized\s+|recursive\s+|global\s+)*"
    r"(?:table|index|view|schema|function|procedure|trigger|type|role|user|database|sequence"
    r"|extension|policy|publication|subscription|system|domain)\b"
)
_SQL = re.compile(
    r"(?:"
    r"select\s+(?:.+?\sfrom\s+[\w.\"%{(]|[\w.]+\s*\(|\d|'|%|\$\d|\*)"
    r"|insert\s+into\s+\S"
    r"|update\s+(?:only\s+)?\S+(?:\s+(?:as\s+)?\w+)?\s+set\s+\S+\s*="
    r"|delete\s+from\s+\S"
    r"|merge\s+into\s+\S"
    r"|with\s+(?:recursive\s+)?\w+(?:\s*\([^)]*\))?\s+as\s+(?:not\s+)?(?:materialized\s+)?\("
    rf"|create\s+(?:or\s+replace\s+)?{_THING}"
    rf"|alter\s+{_THING}|drop\s+{_THING}"
    r"|truncate\s+(?:table\s+)?[\w.\"]+"
    r"|copy\s+.+?\s(?:from|to)\s+(?:std|')"
    r"|lock\s+table\s|grant\s+.+?\son\s|revoke\s+.+?\son\s"
    r"|(?:listen|unlisten|notify)\s+(?:[\w\"*]+\s*(?:,|$))"
    r"|set\s+(?:local\s+|session\s+)?[\w.]+\s*(?:=\s*\S|\sto\s+\S+;?\s*$)"
    r"|show\s+[a-z]+_[a-z_]+$|explain\s+(?:select|update|insert|delete|with|\()"
    r"|begin\s+(?:isolation|read|transaction)|savepoint\s+\w+$|vacuum\s+[\w(]"
    r")",
    re.IGNORECASE | re.DOTALL,
)
_SQL_COMMENTS = re.compile(r"\A(?:\s*--[^\n]*\n)+")


def looks_like_sql(text: str) -> bool:
    """Prose starts with one capital or ends with a full stop; a statement does neither."""
    text = _SQL_COMMENTS.sub("", text).strip()
    prose = text[:2].istitle() or text.endswith((".", "?", "!"))
    return bool(_SQL.match(text)) and not prose


def sql_in_python(source: str) -> Offences:
    tree = ast.parse(source)
    exempt: set[int] = set()
    for node in ast.walk(tree):
        # A string that stands alone is a docstring, or says something about the line above.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            exempt.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            exempt.update(id(part) for part in node.values)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else "x" for p in node.values]
            text = "".join(str(p) for p in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            raw = node.value
            text = raw.decode("latin-1") if isinstance(raw, bytes) else raw
        else:
            continue
        if id(node) not in exempt and looks_like_sql(text):
            found.append((node.lineno, f"SQL outside leasework/pg: {text.strip()[:60]!r}"))
    return found


# -- size --------------------------------------------------------------------------------------
def functions(tree: ast.AST) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def long_functions(source: str) -> Offences:
    return [
        (f.lineno, f"{f.name} has {lines} lines, more than {MAX_FUNCTION_LINES}")
        for f in functions(ast.parse(source))
        if (lines := (f.end_lineno or f.lineno) - f.lineno + 1) > MAX_FUNCTION_LINES
    ]


def long_file(source: str, limit: int) -> Offences:
    lines = len(source.splitlines())
    return [(limit, f"has {lines} lines, more than {limit}")] if lines > limit else []


# -- errors ------------------------------------------------------------------------------------
_BUILTIN_ERRORS = {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}
# Where Python's own protocols ask for a builtin.
_PROTOCOL = {
    "AttributeError": {"__getattr__", "__getattribute__", "__setattr__", "__delattr__"},
    "StopIteration": {"__next__", "__getattr__"},
    "StopAsyncIteration": {"__anext__"},
}


def builtin_raises(source: str, *, may_exit: bool = False) -> Offences:
    found: Offences = []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, Function):
            function = node.name
        if isinstance(node, ast.Raise) and node.exc is not None:
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = error.id if isinstance(error, ast.Name) else ""
            allowed = function in _PROTOCOL.get(name, ()) or (may_exit and name == "SystemExit")
            if name in _BUILTIN_ERRORS and not allowed:
                found.append((node.lineno, f"raises {name}, not a value of errors.py"))
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(source), "")
    return found


# -- sleeping in tests -------------------------------------------------------------------------
_SLEEPS = {"time", "asyncio", "anyio"}


def _number(node: ast.expr) -> float | None:
    """The value of an expression made of literal numbers alone."""
    allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    if not all(isinstance(part, allowed) for part in ast.walk(node)):
        return None
    try:
        return float(eval(compile(ast.Expression(node), "<sleep>", "eval")))
    except (TypeError, ValueError, ArithmeticError):
        return None


def long_sleeps(source: str) -> Offences:
    tree = ast.parse(source)
    modules = {}  # local name -> module
    bare = set()  # local names of a sleep imported by itself
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update({a.asname or a.name: a.name for a in node.names if a.name in _SLEEPS})
        elif isinstance(node, ast.ImportFrom) and node.module in _SLEEPS:
            bare.update(a.asname or a.name for a in node.names if a.name == "sleep")
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not (node.args or node.keywords):
            continue
        func = node.func
        by_module = isinstance(func, ast.Attribute) and func.attr == "sleep"
        by_module = by_module and isinstance(func.value, ast.Name) and func.value.id in modules
        if by_module or (isinstance(func, ast.Name) and func.id in bare):
            seconds = _number(node.args[0] if node.args else node.keywords[0].value)
            if seconds is not None and seconds >= LONGEST_SLEEP_SECONDS:
                found.append((node.lineno, f"sleeps {seconds:g} s: wait for an event instead"))
    return found


# -- docstrings and paths ----------------------------------------------------------------------
def has_docstring(name: str, value: object) -> bool:
    """Own words, not inherited ones and not the signature that a dataclass makes up.

    A plain value (a version, a constant) can have none and needs none.
    """
    if not isinstance(value, type) and not callable(value):
        return True
    doc = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    return bool(doc and doc.strip()) and not str(doc).startswith(f"{name}(")


_MACHINE_PATH = re.compile(r"(?<![\w.\-/])/" + r"(?:work|farm|tmp/bash_jobs)(?=[/.\s\"'`]|$)")


def machine_paths(text: str) -> Offences:
    return [
        (number, f"names a path of one machine: {line.strip()[:80]}")
        for number, line in enumerate(text.splitlines(), 1)
        if _MACHINE_PATH.search(line)
    ]
