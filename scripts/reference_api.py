"""The page docs/reference/api.md: the public classes, from their docstrings and signatures."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any, get_overloads, is_typeddict

import leasehold
import leasehold.testing
from leasehold.app.advisory import AdvisoryLock
from leasehold.app.deadlines import StandingDeadline
from leasehold.app.leader import Leader
from leasehold.app.lock import Lock
from leasehold.app.sync import SyncApp

INTRO = (
    "The names in `leasehold` are public: `from leasehold import App`. The other classes are what "
    "the methods of `App` return. [Errors](errors.md) lists the errors, and "
    "[Settings](settings.md) the arguments of `App`. [Jobs](../howto/jobs.md#options) explains the "
    "options of jobs."
)
TESTING = (
    "[Tests of your application](../howto/testing.md) explains these and the fixtures of the "
    "pytest plugin. `leasehold.testing.sync` has `drain` and `assert_enqueued` as plain functions."
)
FIRST = ("App", "Task", "Job", "JobRecord", "JobRequest", "Context", "SyncContext")
RETURNED = (Leader, Lock, AdvisoryLock, StandingDeadline, SyncApp)
CONSTRUCTED = ("App", "Backoff", "Cancel", "Deadline", "Discard", "Snooze")
"""Classes of which users make objects."""
IN_ERRORS = ("LeaseholdError",)
"""Names of ``leasehold`` that another page describes."""
HIDDEN = {
    "App": "client store work_store located operator make_node state_for inspect loops",
    "Backoff": "seconds",
    "Deadline": "average interval_seconds",
    "Job": "reads",
    "JobRequest": "as_request",
    "AdvisoryLock": "acquire_on",
    "SyncApp": "call background",
}
"""What only leasehold itself calls."""
_LINE = 88
_MODULE = re.compile(r"^(?:[a-z_]+\.)+(?=[A-Z])")


def sections() -> list[tuple[str, Any]]:
    """The classes in the order of the page."""
    names = sorted(leasehold.__all__, key=lambda n: (n not in FIRST, n))
    names = [*FIRST, *[n for n in names if n not in FIRST and n not in IN_ERRORS]]
    return [(n, getattr(leasehold, n)) for n in names] + [(k.__name__, k) for k in RETURNED]


def members(kind: Any) -> dict[str, Any]:
    """The public methods and properties, in the order of the source."""
    hidden = HIDDEN.get(kind.__name__, "").split()
    found: dict[str, Any] = {}
    for owner in kind.__mro__:
        if owner is not kind and owner.__name__ in leasehold.__all__:
            break  # the page has it
        if owner.__module__.startswith("leasehold"):
            for name, value in vars(owner).items():
                public = not name.startswith("_") and name not in hidden
                if public and isinstance(value, FunctionType | property):
                    found.setdefault(name, value)
    return found


def body(first_level: int = 2) -> list[str]:
    """The paragraphs of the page."""
    mark = "#" * first_level
    made = [part for name, kind in sections() for part in _class(name, kind, mark)]
    return [*made, f"{mark} leasehold.testing", TESTING, *_testing(mark)]


def _testing(mark: str) -> Iterator[str]:
    for name in leasehold.testing.__all__:
        value = getattr(leasehold.testing, name)
        if inspect.isclass(value):
            yield from _class(name, value, f"{mark}#")
        else:
            yield f"{mark}# {name}"
            yield from _member(name, value)


def _class(name: str, kind: Any, mark: str) -> Iterator[str]:
    yield f"{mark} {name}"
    if not inspect.isclass(kind):  # the alias of a type
        yield f"```python\n{name} = {str(kind).replace('collections.abc.', '')}\n```"
        return
    if name in CONSTRUCTED:  # its fields are the arguments
        yield f"```python\n{signature(name, kind.__init__, '')}\n```"
    yield markdown(kind.__doc__)
    if dataclasses.is_dataclass(kind) and not members(kind) and name not in CONSTRUCTED:
        yield _fields(kind)
    for member, value in members(kind).items():
        yield f"{mark}# {name}.{member}"
        yield from _member(member, value)


def _member(name: str, value: Any) -> Iterator[str]:
    function = value.fget if isinstance(value, property) else value
    if isinstance(value, property):
        kind = inspect.signature(function).return_annotation
        yield f"```python\n{name}: {kind}\n```"
    else:
        yield f"```python\n{signature(name, function)}\n```"
    yield markdown(function.__doc__)


def signature(name: str, function: Any, prefix: str = "def ") -> str:
    """The call as Python writes it, with the options that ``**options`` stands for."""
    shown = get_overloads(function)[-1] if get_overloads(function) else function
    plain = inspect.unwrap(shown)
    given = inspect.signature(plain)
    parts: list[str] = []
    kinds = [p.kind for p in given.parameters.values()]
    for index, parameter in enumerate(list(given.parameters.values())):
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.VAR_KEYWORD and (options := _options(parameter, plain)):
            parts += options if "*" in parts else ["*", *options]
            continue
        star = "*" in parts or parameter.VAR_POSITIONAL in kinds
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
        parts.append(_parameter(parameter))
        after = kinds[index + 1] if index + 1 < len(kinds) else None
        if parameter.kind is parameter.POSITIONAL_ONLY and after is not parameter.kind:
            parts.append("/")
    returned = f" -> {given.return_annotation}" if prefix else ""
    prefix = f"async {prefix}" if inspect.iscoroutinefunction(plain) else prefix
    line = f"{prefix}{name}({', '.join(parts)}){returned}"
    if len(line) <= _LINE:
        return line
    return f"{prefix}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returned}"


def _parameter(given: inspect.Parameter) -> str:
    stars = {given.VAR_POSITIONAL: "*", given.VAR_KEYWORD: "**"}.get(given.kind, "")
    default = "" if given.default is given.empty else f" = {_value(given.default)}"
    return f"{stars}{given.name}: {given.annotation}{default}"


def _value(default: object) -> str:
    """Objects of leasehold's own have no text that a reader could write."""
    return repr(default) if isinstance(default, str | int | float | tuple | None) else "…"


def _options(parameter: inspect.Parameter, function: Any) -> list[str]:
    """The keys of a TypedDict: ``**options: Unpack[JobGiven]``."""
    named = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
    kind = function.__globals__.get(named[1]) if named else None
    if not is_typeddict(kind):
        return []
    known = [(key, value) for key, value in kind.__annotations__.items()]
    return [f"{key}: {getattr(value, '__forward_arg__', value)} = ..." for key, value in known]


def _fields(kind: Any) -> str:
    """The fields of a dataclass, with the text below each."""
    lines = []
    told = {name: text for owner in kind.__mro__ for name, text in _told(owner).items()}
    for field in dataclasses.fields(kind):
        text = told.get(field.name, "")
        default = "" if field.default is dataclasses.MISSING else f" = {_value(field.default)}"
        shown = f"`{field.name}: {field.type}{default}`"
        lines.append(f"- {shown}" + (f": {' '.join(markdown(text).split())}" if text else ""))
    return "\n".join(lines)


def _told(owner: Any) -> dict[str, str]:
    """Field -> the string below it."""
    if not owner.__module__.startswith("leasehold"):
        return {}
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for line, after in zip(tree.body, tree.body[1:], strict=False):
        match line, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                found[name] = str(text)
    return found


def markdown(doc: str | None) -> str:
    """A docstring as Markdown: its examples, after ``::``, become blocks of Python."""
    lines = inspect.cleandoc(doc or "").splitlines()
    made: list[str] = []
    while lines:
        line = lines.pop(0)
        if not line.endswith("::"):
            made.append(_inline(line))
            continue
        made += [_inline(line[:-1]), ""]
        while lines and not lines[0].strip():
            lines.pop(0)
        block: list[str] = []
        while lines and (not lines[0].strip() or lines[0].startswith(" ")):
            block.append(lines.pop(0))
        made += ["```python", *textwrap.dedent("\n".join(block)).strip().splitlines(), "```", ""]
    return "\n".join(made).strip()


def _inline(line: str) -> str:
    line = re.sub(r":\w+:`~?([\w.]+)`", lambda m: f"`{_MODULE.sub('', m[1])}`", line)
    return line.replace("``", "`")


def undocumented() -> list[str]:
    """Public names without a docstring or an annotation."""
    wrong = []
    for name, kind in sections():
        if inspect.isclass(kind):
            wrong += [name] * (not kind.__doc__)
            for member, value in members(kind).items():
                function = value.fget if isinstance(value, property) else value
                plain = inspect.signature(inspect.unwrap(function))
                bare = [
                    p.name
                    for p in plain.parameters.values()
                    if p.annotation is p.empty and p.name != "self"
                ]
                if not value.__doc__ or plain.return_annotation is plain.empty or bare:
                    wrong.append(f"{name}.{member}")
    return wrong


if __name__ == "__main__":
    sys.stdout.write("\n\n".join(body()) + "\n")
