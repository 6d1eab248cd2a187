"""The page docs/reference/api.md: the public classes, from their docstrings and signatures."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, get_overloads, is_typeddict

import msgspec

import leasework
import leasework.app.sync
import leasework.testing
from leasework.integrations.django.base import DjangoApp
from leasework.integrations.gunicorn import node

INTRO = (
    "The names in `leasework` are public: `from leasework import App`. After these, the page "
    "describes the other modules from which you import. [Errors](errors.md) lists the errors, and "
    "[Settings](settings.md) the arguments of `App`. [Jobs](../howto/jobs.md#options) explains the "
    "options of jobs."
)
TESTING = (
    "[Tests of your application](../howto/testing.md) explains these and the fixtures of the "
    "pytest plugin."
)
ROOT = Path(__file__).parents[1]
FIRST = (
    "App", "Task", "Job", "JobRecord", "JobRequest", "Context", "SyncContext", "StoredSchedules",
    "StoredSchedule", "Leader", "Lock", "AdvisoryLock", "StandingDeadline", "SyncApp",
    "SyncSchedules",
)  # fmt: skip
IN_SIGNATURES = {
    "leasework.app.advisory": "Scope",
    "leasework.app.core": "Lifespan",
    "leasework.app.deadlines": "Due OnBreach",
    "leasework.app.flow": "Claim",
    "leasework.app.home": "Follows",
    "leasework.cells": "Key",
    "leasework.app.definitions": "Registers Schedules",
    "leasework.app.diagnosis": "Role",
    "leasework.jobs.tasks": "Executor Upcast",
    "leasework.model.deadline": "AnyTask Since Until",
    "leasework.model.limits": "FromArguments",
    "leasework.model.states": "StateName",
    "leasework.store.durable": "BatchView Ended",
    "leasework.testing.contexts": "Note",
}
"""Names of types that stand in signatures and that nobody imports."""
CONSTRUCTED = (
    "App", "Backoff", "Cancel", "Cells", "Deadline", "Discard", "Rate", "Snooze", "Login",
    "BackgroundNode", "Leasework", "DjangoApp",
)  # fmt: skip
"""Classes of which users make objects."""


class Module(NamedTuple):
    """A module from which users import, besides ``leasework`` and ``leasework.testing``."""

    name: str
    intro: str
    public: str = ""
    """Its names, in the order of the page."""
    doc: bool = True
    """Whether its docstring is for users."""


_HOWTO = "[{}](../howto/{}.md) explains how to use {}."
MODULES = (
    Module("leasework.testing.sync", "", "drain assert_enqueued clear"),
    Module("leasework.embedded", "", "EmbeddedServer"),
    Module(
        "leasework.web",
        "[The dashboard](../howto/dashboard.md) and [Metrics, probes and "
        "alerts](../howto/metrics.md) explain how to use these.",
        "dashboard Login probes",
    ),
    Module(
        "leasework.integrations.background",
        _HOWTO.format("Flask", "flask", "it"),
        "BackgroundNode",
    ),
    Module(
        "leasework.integrations.flask",
        _HOWTO.format("Flask", "flask", "it"),
        "Leasework app_of_flask",
    ),
    Module(
        "leasework.integrations.django",
        _HOWTO.format("Django", "django", "it"),
        "app DjangoApp",
    ),
    Module(
        "leasework.integrations.django.gunicorn",
        "",
        "post_worker_init worker_exit",
    ),
    Module("leasework.integrations.django.backend", "", "LeaseworkBackend"),
    Module("leasework.integrations.django.models", "", "Job Schedule"),
    Module("leasework.integrations.django.urls", ""),
    Module(
        "leasework.integrations.gunicorn",
        _HOWTO.format("Web processes", "web", "them"),
        "node",
    ),
    Module("leasework.integrations.wsgi", "", "as_wsgi"),
    Module(
        "leasework.integrations.rows",
        _HOWTO.format("Row claims", "row-claims", "them"),
        "claim_rows",
    ),
    Module(
        "leasework.integrations.apscheduler",
        _HOWTO.format("APScheduler", "apscheduler", "it"),
        "leader_gate leader_gate_in_thread",
    ),
    Module(
        "leasework.jobs.tasks",
        "The options of `@app.task`. [Jobs](../howto/jobs.md#options) explains them.",
        "TaskOptions",
        doc=False,
    ),
    Module(
        "leasework.watch.inspector",
        "`await app.inspect()` returns an `Inspector`.",
        "Inspector",
        doc=False,
    ),
    Module(
        "leasework.store.rows",
        "The rows that an `Inspector` returns.",
        "NodeView LeaderView TermView LockView StoredSchedule TickView EventView DeadlineView "
        "UnhandledBreach",
        doc=False,
    ),
    Module(
        "leasework.telemetry",
        _HOWTO.format("Logging", "logging", "it"),
        "JsonFormatter",
        doc=False,
    ),
    Module(
        "leasework.errors",
        "[Errors](errors.md) lists the errors.",
        "without_secrets",
        doc=False,
    ),
)
_WORKER_HOOKS = node("leasework.integrations.django:app")
NOT_IMPORTED: dict[str, Any] = {
    "leasework.integrations.django.DjangoApp": DjangoApp,
    "leasework.integrations.django.gunicorn.post_worker_init": _WORKER_HOOKS[0],
    "leasework.integrations.django.gunicorn.worker_exit": _WORKER_HOOKS[1],
}
"""What stands for names whose modules need a Django project."""
FROM_SOURCE = (
    "leasework.integrations.django.app",
    "leasework.integrations.django.backend.LeaseworkBackend",
    "leasework.integrations.django.models.Job",
    "leasework.integrations.django.models.Schedule",
)
"""Read from the text of the module, for the same reason."""
ELSEWHERE = ("LeaseworkError", "Limits", "Polling", "Retention")
"""Names of ``leasework`` that the pages on errors and settings describe."""
HIDDEN = {
    "App": "noted_locks taking_part check_in_time given client store stores "
    "reports located operator make_node state_for loops in_use current_dsn",
    "Backoff": "seconds",
    "Context": "claim worker_id",
    "Finding": "as_json",
    "Inspector": "facts app_of",
    "Lost": "set call forget",
    "Node": "start stop receive on_drain host_type",
    "Deadline": "interval_seconds",
    "JobRequest": "as_request",
    "AdvisoryLock": "acquire_on",
    "SyncApp": "call background",
    "SyncContext": "cancelled",
    "Task": "standing_options",
    "DjangoApp": "located current_dsn",
    "JsonFormatter": "format",
    "Login": "secret who",
}
"""What only leasework itself calls."""
_LINE = 88
_RECEIVERS = ("self", "cls")
_MODULE = re.compile(r"^(?:[a-z_]+\.)+(?=[A-Z])")


def sections() -> list[tuple[str, Any]]:
    """The classes in the order of the page."""
    names = [*FIRST, *[n for n in leasework.__all__ if n not in (*FIRST, *ELSEWHERE)]]
    return [(name, getattr(leasework, name)) for name in names]


def of_modules() -> list[tuple[str, Any]]:
    """The names of MODULES that can be imported here, by their full names."""
    wanted = [f"{m.name}.{name}" for m in MODULES for name in m.public.split()]
    return [(full, _imported(full)) for full in wanted if full not in FROM_SOURCE]


def _imported(full: str) -> Any:
    module, _, name = full.rpartition(".")
    return NOT_IMPORTED.get(full) or getattr(import_module(module), name)


def _owners(kind: Any) -> list[Any]:
    """The class and its bases that are leasework's, except what the page has under its own name."""
    owners = [kind]
    for owner in kind.__mro__[1:]:
        if owner.__name__ in leasework.__all__:
            break
        if owner.__module__.startswith("leasework"):
            owners.append(owner)
    return owners


def members(kind: Any) -> dict[str, Any]:
    """The public methods and properties, in the order of the source."""
    hidden = HIDDEN.get(kind.__name__, "").split()
    found: dict[str, Any] = {}
    for owner in _owners(kind):
        for name, value in vars(owner).items():
            public = not name.startswith("_") and name not in hidden
            if public and isinstance(value, FunctionType | property | classmethod):
                found.setdefault(name, value)
    return found


def body(first_level: int = 2) -> list[str]:
    """The paragraphs of the page."""
    mark = "#" * first_level
    made = [part for name, kind in sections() for part in _class(name, kind, mark)]
    made += [f"{mark} Types in signatures", *_in_signatures(mark)]
    made += [f"{mark} leasework.testing", TESTING, *_testing(mark)]
    return [*made, *[part for module in MODULES for part in _module(module, mark)]]


def _module(module: Module, mark: str) -> Iterator[str]:
    yield f"{mark} {module.name}"
    if module.doc:
        yield markdown(ast.get_docstring(_tree(module.name)))
    if module.intro:
        yield module.intro
    for name in module.public.split():
        full = f"{module.name}.{name}"
        if full in FROM_SOURCE:
            yield from [f"{mark}# {full}", *_from_source(module.name, name)]
            continue
        value = _imported(full)
        if inspect.isclass(value):
            yield from _class(name, value, f"{mark}#", full)
        else:
            yield f"{mark}# {full}"
            yield from _member(name, value)


def _tree(module: str) -> ast.Module:
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text("utf-8"))


def _from_source(module: str, name: str) -> list[str]:
    """A class's docstring, or the annotation of a name and the text below it."""
    for block in ast.walk(_tree(module)):
        lines = getattr(block, "body", None)
        for line, after in (
            zip(lines, [*lines[1:], None], strict=True) if isinstance(lines, list) and lines else ()
        ):
            match line, after:
                case ast.ClassDef(name=found), _ if found == name:
                    return [markdown(ast.get_docstring(line))]
                case (
                    ast.AnnAssign(target=ast.Name(id=found)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ) if found == name:
                    shown = f"{name}: {ast.unparse(line.annotation)}"
                    return [f"```python\n{shown}\n```", markdown(text)]
                case (
                    ast.Assign(targets=[ast.Name(id=found)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ) if found == name:
                    return [f"```python\n{ast.unparse(line)}\n```", markdown(text)]
    raise LookupError(f"{module} has no {name} with a text")


def _in_signatures(mark: str) -> Iterator[str]:
    for module, names in IN_SIGNATURES.items():
        for name in names.split():
            yield "\n\n".join([f"{mark}# {name}", *_from_source(module, name)])


def _testing(mark: str) -> Iterator[str]:
    for name in leasework.testing.__all__:
        value = getattr(leasework.testing, name)
        if inspect.isclass(value):
            yield from _class(name, value, f"{mark}#")
        else:
            yield f"{mark}# {name}"
            yield from _member(name, value)


def _class(name: str, kind: Any, mark: str, title: str = "") -> Iterator[str]:
    yield f"{mark} {title or name}"
    if not inspect.isclass(kind):  # the alias of a type
        yield from _from_source(_origin(name), name)
        return
    if name in CONSTRUCTED:  # its fields are the arguments
        yield f"```python\n{signature(name, kind.__init__, '')}\n```"
    yield markdown(kind.__doc__)
    if fields := _fields(kind, told_only=name in CONSTRUCTED):
        yield fields
    for member, value in members(kind).items():
        yield f"{mark}# {name}.{member}"
        yield from _member(member, value)


def _origin(name: str) -> str:
    """The module from which ``leasework`` has a name."""
    for line in _tree("leasework.exports").body:
        match line:
            case ast.ImportFrom(module=str(module), names=names):
                if any(each.asname == name for each in names):
                    return module
    raise LookupError(name)


def _member(name: str, value: Any) -> Iterator[str]:
    function = _function(value)
    if isinstance(value, property):
        kind = inspect.signature(function).return_annotation
        yield f"```python\n{name}: {kind}\n```"
    else:
        mark = "@classmethod\n" if isinstance(value, classmethod) else ""
        yield f"```python\n{mark}{signature(name, function)}\n```"
    yield markdown(function.__doc__)


def _function(member: Any) -> Any:
    return member.fget if isinstance(member, property) else getattr(member, "__func__", member)


def signature(name: str, function: Any, prefix: str = "def ") -> str:
    """The call as Python writes it, with the options that ``**options`` stands for."""
    shown = get_overloads(function)[-1] if get_overloads(function) else function
    plain = inspect.unwrap(shown)
    given = inspect.signature(plain)
    parts: list[str] = []
    kinds = [p.kind for p in given.parameters.values()]
    for index, parameter in enumerate(list(given.parameters.values())):
        if parameter.name in _RECEIVERS:
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
    waits = shown.__globals__ is vars(leasework.app.sync)  # made by ``blocking``
    prefix = f"async {prefix}" if inspect.iscoroutinefunction(plain) and not waits else prefix
    line = f"{prefix}{name}({', '.join(parts)}){returned}"
    if len(line) <= _LINE:
        return line
    return f"{prefix}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returned}"


def _parameter(given: inspect.Parameter) -> str:
    stars = {given.VAR_POSITIONAL: "*", given.VAR_KEYWORD: "**"}.get(given.kind, "")
    default = "" if given.default is given.empty else f" = {_value(given.default)}"
    return f"{stars}{given.name}: {given.annotation}{default}"


def _value(default: object) -> str:
    """Objects of leasework's own have no text that a reader could write."""
    return repr(default) if isinstance(default, str | int | float | tuple | None) else "…"


def _options(parameter: inspect.Parameter, function: Any) -> list[str]:
    """The keys of a TypedDict: ``**options: Unpack[JobGiven]``."""
    named = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
    kind = function.__globals__.get(named[1]) if named else None
    if not is_typeddict(kind):
        return []
    known = [(key, value) for key, value in kind.__annotations__.items()]
    return [f"{key}: {getattr(value, '__forward_arg__', value)} = ..." for key, value in known]


def fields_of(kind: Any) -> dict[str, tuple[Any, Any, str]]:
    """The fields of a class: annotation, default, and the text below. Of a class that is neither a
    dataclass nor a named tuple, those that have a text."""
    found: dict[str, tuple[Any, Any, str]] = {}
    if hasattr(kind, "_fields"):
        for name, value in kind.__annotations__.items():
            found[name] = getattr(value, "__forward_arg__", value), dataclasses.MISSING, ""
    elif dataclasses.is_dataclass(kind):
        here = {name for owner in _owners(kind) for name in owner.__annotations__}
        given = [each for each in dataclasses.fields(kind) if each.name in here]
        found = {each.name: (each.type, each.default, "") for each in given}
    elif issubclass(kind, msgspec.Struct):
        names, defaults = kind.__struct_fields__, kind.__struct_defaults__
        given = dict(zip(reversed(names), reversed(defaults), strict=False))
        here = {n: text for owner in _owners(kind) for n, text in owner.__annotations__.items()}
        for name in [name for name in names if name in here]:
            found[name] = here[name], given.get(name, dataclasses.MISSING), ""
    for owner in reversed(_owners(kind)):
        for name, (annotation, text) in _told(owner).items():
            known, default, _ = found.get(name, (annotation, dataclasses.MISSING, ""))
            found[name] = known, default, text
    return found


def _fields(kind: Any, *, told_only: bool) -> str:
    hidden = HIDDEN.get(kind.__name__, "").split()
    lines = []
    for name, (annotation, default, text) in fields_of(kind).items():
        if name.startswith("_") or name in hidden or (told_only and not text):
            continue
        shown = f"`{name}: {annotation}"
        shown += "`" if default is dataclasses.MISSING else f" = {_value(default)}`"
        lines.append(f"- {shown}" + (f": {' '.join(markdown(text).split())}" if text else ""))
    return "\n".join(lines)


def _told(owner: Any) -> dict[str, tuple[str, str]]:
    """The fields of a class that have a text below them, also in ``__init__``: annotation, text."""
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(tree, ast.ClassDef)
    begins = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"]
    found = {}
    for lines in [tree.body, *[begin.body for begin in begins]]:
        for line, after in pairwise(lines):
            match line, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = ast.unparse(line.annotation), text
                case (
                    ast.Assign(targets=[ast.Name(id=name)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):  # of an enumeration
                    found[name] = f"str = {ast.unparse(line.value)}", text
    return found


def markdown(doc: str | None) -> str:
    """A docstring as Markdown: its examples, which are indented, become blocks of Python."""
    lines = inspect.cleandoc(doc or "").splitlines()
    made: list[str] = []
    while lines:
        line = lines.pop(0)
        if line.endswith("::"):
            made += [_inline(line[:-1]), ""]
        elif line.startswith("    ") and made[-1:] == [""]:
            lines.insert(0, line)
        else:
            made.append(_inline(line))
            continue
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
    for name, kind in [*sections(), *of_modules()]:
        if inspect.isclass(kind):
            wrong += [name] * (not kind.__doc__)
            wrong += [f"{name}.{m}" for m, value in members(kind).items() if _is_bare(value)]
        elif inspect.isfunction(kind):
            wrong += [name] * _is_bare(kind)
    return wrong


def _is_bare(member: Any) -> bool:
    given = inspect.signature(inspect.unwrap(_function(member)))
    annotations = [given.return_annotation]
    annotations += [p.annotation for n, p in given.parameters.items() if n not in _RECEIVERS]
    return not _function(member).__doc__ or inspect.Parameter.empty in annotations


if __name__ == "__main__":
    sys.stdout.write("\n\n".join(body()) + "\n")
