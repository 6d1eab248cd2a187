"""The page on the Python API: every public name is there, with what a caller needs."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import contextlib
import inspect
import logging
import re
import typing
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

import leasework
from leasework import App, Job, errors as known_errors
from leasework.config import check_text
from scripts import reference_api
from scripts.reference_api import (
    markdown,
    members,
    of_modules,
    sections,
    signature,
    undocumented,
)
from tests.arch import tree
from tests.docs.raised import not_in, raised_by

HOWTO = sorted((tree.ROOT / "docs" / "howto").glob("*.md"))
IMPORT = re.compile(r"^ *from (leasework[\w.]*) import (\([^)]*\)|[^\n#(]+)", re.M)
DOTTED = re.compile(r"\bleasework(?:\.\w+){2,}")


def test_every_public_name_is_documented_and_annotated():
    assert undocumented() == []


def test_a_name_without_a_docstring_or_an_annotation_is_caught(monkeypatch):
    class Bare:
        """A class."""

        def quiet(self) -> None: ...

        def odd(self, given) -> None:
            """A method."""

    Bare.__module__ = "leasework.bare"
    monkeypatch.setattr(reference_api, "sections", lambda: [("Bare", Bare)])
    monkeypatch.setattr(reference_api, "of_modules", lambda: [])
    assert undocumented() == ["Bare.quiet", "Bare.odd"]


def test_no_page_of_the_reference_has_the_markup_of_docstrings():
    for page in (tree.ROOT / "docs" / "reference").glob("*.md"):
        prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
        assert not re.findall(r":\w+:`|``|^\.\. \w|::$|`_", prose, re.M), page.name


REFERS = re.compile(r"See :\w+:|see\s+:meth:")
"""The docstring names another one, which has the errors."""
EXEMPT = {
    "leasework.watch.inspector.Inspector.look": "reports them as problems",
    "leasework.watch.inspector.Inspector.problems": "reports them as problems",
    "leasework.integrations.gunicorn.node": "gunicorn calls what it returns",
    "App.diagnose": "an error of the database is a finding",
    "leasework.integrations.django.gunicorn.post_worker_init": "gunicorn calls it",
}


def without_their_errors(kinds: list[tuple[str, Any]]) -> dict[str, list[str]]:
    """The public functions and classes whose docstrings lack errors that they raise."""
    texts: dict[str, tuple[Any, Any, str]] = {}
    for name, kind in kinds:
        if inspect.isfunction(kind):
            texts[name] = kind, None, kind.__doc__ or ""
        elif inspect.isclass(kind):
            made = vars(kind).get("__post_init__") or vars(kind).get("__init__")
            if name.rpartition(".")[2] in reference_api.CONSTRUCTED:
                texts[name] = made, kind, kind.__doc__ or ""
            for member, value in members(kind).items():
                function = reference_api._function(value)
                texts[f"{name}.{member}"] = function, kind, function.__doc__ or ""
    found = {
        name: not_in(doc, raised_by(function, owner))
        for name, (function, owner, doc) in texts.items()
        if function and not REFERS.search(doc)
    }
    return {name: errors for name, errors in found.items() if errors}


def test_every_docstring_names_the_errors():
    kinds = [*sections(), *of_modules()]
    kinds += [(name, getattr(leasework.testing, name)) for name in leasework.testing.__all__]
    found = without_their_errors(kinds)
    assert found.keys() - EXEMPT.keys() == set(), found
    assert EXEMPT.keys() <= found.keys(), "these name their errors"


def test_an_error_that_a_docstring_lacks_is_caught():
    lacks = without_their_errors([("Sample", Sample), ("sampled", sampled)])
    assert lacks == {"Sample.get": ["BadJob"], "sampled": ["ConfigError"]}


class Sample:
    """A class."""

    def get(self) -> None:
        """Raises ConfigError."""
        self._check()

    def _check(self) -> None:
        check_text("a", "b", 3)
        raise known_errors.BadJob("never")

    def other(self) -> None:
        """See :meth:`get`."""
        self._check()


Sample.__module__ = "leasework.sample"


def sampled() -> None:
    """Return None. Raises BadJob."""
    check_text("a", "b", 3)


def named(page: str) -> Iterator[str]:
    """The full names of leasework's that a page imports or writes out."""
    for module, names in IMPORT.findall(page):
        yield from (f"{module}.{name}" for name in re.findall(r"(\w+)(?: as \w+)?", names))
    for full in DOTTED.findall(page):
        module = full if is_module(full) else full.rpartition(".")[0]
        if is_module(module):
            yield full


def is_module(full: str) -> bool:
    path = tree.ROOT.joinpath(*full.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


@cache
def headings() -> set[str]:
    """The full names that the page on the API describes."""
    found = {found[1] for part in reference_api.body() if (found := re.match("#+ (.+)", part))}
    inside = {f"leasework.testing.{name}" for name in leasework.testing.__all__}
    return found | inside | {f"leasework.{name}" for name in found}


def lacking(page: str) -> list[str]:
    """The names of a page that neither the page on the API nor that on errors describes."""
    kinds = [kind for kind in vars(known_errors).values() if isinstance(kind, type)]
    there = [kind for kind in kinds if issubclass(kind, known_errors.LeaseworkError)]
    elsewhere = {f"leasework.errors.{kind.__name__}" for kind in there}
    elsewhere |= {f"leasework.{name}" for name in reference_api.ELSEWHERE}
    return sorted(set(named(page)) - headings() - elsewhere)


@pytest.mark.parametrize("page", HOWTO, ids=lambda page: page.stem)
def test_every_name_that_a_howto_page_imports_is_in_the_reference(page):
    assert lacking(page.read_text("utf-8")) == []


def test_an_import_that_the_reference_lacks_is_caught():
    page = """
from leasework import App, Leaser
    from leasework.integrations.gunicorn import (
        node, nod
    )
from leasework.errors import ConfigError, Nothing
The formatter `leasework.telemetry.JsonFormatter`, the function `leasework.env.Env`, the module
`leasework.integrations.celery`, and the view leasework.jobs.
"""
    assert lacking(page) == [
        "leasework.Leaser",
        "leasework.env.Env",
        "leasework.errors.Nothing",
        "leasework.integrations.celery",
        "leasework.integrations.gunicorn.nod",
    ]


def test_a_name_is_described_without_its_module():
    django = reference_api._from_source("leasework.integrations.django", "app")
    assert django[0] == "```python\napp: DjangoApp\n```" and django[1]
    with pytest.raises(LookupError, match="has no Nothing"):
        reference_api._from_source("leasework.integrations.django.models", "Nothing")


def test_the_stand_ins_are_what_the_modules_have():
    told = [full for full in reference_api.NOT_IMPORTED if ".gunicorn." in full]
    [made] = {full.rpartition(".")[0] for full in told}
    source = (tree.ROOT / f"{made.replace('.', '/')}.py").read_text("utf-8")
    assert 'post_worker_init, worker_exit = node("' in source


def test_fields_are_described_with_their_texts():
    shown = {name: reference_api._fields(kind, told_only=False) for name, kind in sections()
             if isinstance(kind, type)}  # fmt: skip
    assert "`state: Any = None`: What `App(lifespan=…)` yielded" in shown["Context"]
    assert "`created: bool`: False if its unique key" in shown["Job"]
    assert "`id: UUID`: The id that the callback" in shown["StandingDeadline"]
    assert "`lost: threading.Event`: Set when" in shown["SyncAdvisoryLock"]
    assert "`schedules: StoredSchedules`: " in shown["App"] and "noted_locks" not in shown["App"]
    assert "claim" not in shown["Context"] and shown["SyncContext"] == ""


def test_what_is_hidden_is_there_and_nothing_else_is_left_out():
    kinds = {kind.__name__: kind for _, kind in of_modules() if isinstance(kind, type)}
    kinds |= dict(sections())
    shown = {name: members(kind) for name, kind in kinds.items() if isinstance(kind, type)}
    for name, hidden in reference_api.HIDDEN.items():
        kind = kinds[name]
        known = {*dir(kind), *reference_api.fields_of(kind)}
        assert known >= set(hidden.split())
    assert {"enqueue", "enqueue_many", "task", "periodic", "lifespan"} <= shown["App"].keys()
    assert "seconds" not in shown["Backoff"] and "wait" in shown["Job"]
    assert {"put", "pause"} <= shown["StoredSchedules"].keys()
    assert "start" in shown["EmbeddedServer"] and "located" not in shown["DjangoApp"]


STANDARD = {*dir(builtins), *dir(typing), *dir(collections.abc), *dir(contextlib), *dir(logging)}
STANDARD |= {"UUID", "P", "R", "M", "U"}


def not_described(page: list[str]) -> set[str]:
    """The types in the signatures of a page that the page on the API does not describe."""
    shown = [one for head, one in pairwise(page) if head[:1] == "#" and one[:3] == "```"]
    shown = [re.sub(r"'.*?'", "", one) for one in shown]
    words = set(re.findall(r"\b[A-Z]\w*", "\n".join(shown)))
    known = {name.rpartition(".")[2] for name in headings()} | set(reference_api.ELSEWHERE)
    return words - known - STANDARD


def test_every_type_in_a_signature_is_described():
    page = reference_api.body()
    last = page.index("## leasework.testing.sync")
    assert not_described(page[:last]) == set()


def test_a_type_that_the_page_lacks_is_caught():
    page = [
        "## f",
        "```python\nasync def f(a: App, b: Shedule | None, c: Literal['X']) -> Iterator[Y]\n```",
    ]
    assert not_described(page) == {"Shedule", "Y"}


def test_every_example_is_python():
    known = [*sections(), *of_modules()]
    docs = [kind.__doc__ for _, kind in known]
    docs += [
        m.__doc__ for _, kind in known if isinstance(kind, type) for m in members(kind).values()
    ]
    examples = re.findall(r"^```python\n(.*?)^```", "\n\n".join(map(markdown, docs)), re.M | re.S)
    assert len(examples) > 20
    for example in examples:
        assert ast.parse(example.replace("…", "...")).body


@pytest.mark.parametrize(
    ("doc", "page"),
    [
        ("See :meth:`App.get` and ``x``.", "See `App.get` and `x`."),
        ("Take :class:`leasework.config.Settings`.", "Take `Settings`."),
        ("So::\n\n    f(1)\n    f(2)\n\nEnd.", "So:\n\n```python\nf(1)\nf(2)\n```\n\nEnd."),
        ("So.\n\n    f(1)\n\nEnd.", "So.\n\n```python\nf(1)\n```\n\nEnd."),
    ],
)  # fmt: skip
def test_a_docstring_becomes_markdown(doc, page):
    assert markdown(doc) == page


def test_a_signature_names_the_options_that_a_typed_dict_stands_for():
    shown = signature("task", App.task)
    assert "max_attempts: int = ..." in shown and "executor: Executor | None = ..." in shown
    assert signature("wait", Job.wait).startswith("async def wait(timeout: ")

    def plain(self: Any, a: int, /, *, b: str = "x") -> None: ...

    assert signature("plain", plain) == "def plain(a: int, /, *, b: str = 'x') -> None"
