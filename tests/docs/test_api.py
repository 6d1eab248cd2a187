"""The page on the Python API: every public name is there, with what a caller needs."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from leasehold import App, Job
from scripts import reference_api
from scripts.reference_api import markdown, members, sections, signature, undocumented


def test_every_public_name_is_documented_and_annotated():
    assert undocumented() == []


def test_a_name_without_a_docstring_or_an_annotation_is_caught(monkeypatch):
    class Bare:
        """A class."""

        def quiet(self) -> None: ...

        def odd(self, given) -> None:
            """A method."""

    Bare.__module__ = "leasehold.bare"
    monkeypatch.setattr(reference_api, "sections", lambda: [("Bare", Bare)])
    assert undocumented() == ["Bare.quiet", "Bare.odd"]


def test_what_is_hidden_is_there_and_nothing_else_is_left_out():
    shown = {name: members(kind) for name, kind in sections() if isinstance(kind, type)}
    for name, hidden in reference_api.HIDDEN.items():
        kind = dict(sections())[name]
        assert all(hasattr(kind, one) for one in hidden.split())
    assert {"enqueue", "enqueue_many", "task", "periodic", "lifespan"} <= shown["App"].keys()
    assert "reads" not in shown["Job"] and "wait" in shown["Job"]


def test_every_example_is_python():
    docs = [kind.__doc__ for _, kind in sections()]
    docs += [m.__doc__ for _, kind in sections() for m in members(kind).values()]
    examples = re.findall(r"^```python\n(.*?)^```", "\n\n".join(map(markdown, docs)), re.M | re.S)
    assert len(examples) > 20
    for example in examples:
        ast.parse(example.replace("…", "..."))


@pytest.mark.parametrize(
    ("doc", "page"),
    [
        ("See :meth:`App.get` and ``x``.", "See `App.get` and `x`."),
        ("Take :class:`leasehold.config.Settings`.", "Take `Settings`."),
        ("So::\n\n    f(1)\n    f(2)\n\nEnd.", "So:\n\n```python\nf(1)\nf(2)\n```\n\nEnd."),
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
