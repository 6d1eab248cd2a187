"""House rules for Python and for the tree, each with a proof that it catches an offender."""

from __future__ import annotations

import ast
import re
from functools import partial

import pytest

import leasework
from leasework.config import check_variables
from leasework.errors import ConfigError
from tests.arch import code_rules, tree


def offences_of(rule, files) -> list[str]:
    return [
        f"{tree.short(p)}:{line}: {what}"
        for p in files
        for line, what in rule(p.read_text(encoding="utf-8"))
    ]


def package_files() -> list:
    return [*tree.python_files(tree.PACKAGE), *tree.python_files(tree.LAB)]


# -- SQL lives in leasework/pg -------------------------------------------------------------------
def test_no_python_file_outside_pg_holds_sql():
    outside = [p for p in package_files() if tree.PG not in p.parents and p.name != "tables.py"]
    assert not (found := offences_of(code_rules.sql_in_python, outside)), "\n".join(found)


@pytest.mark.parametrize(
    "sql",
    [
        "select id from leasework.job",
        "  SELECT pg_is_in_recovery()",
        "select 1",
        "-- purpose\nselect * from job",
        "insert into job (id) values (%s)",
        "update job set node = null",
        "update leasework.job as j set node = null",
        "delete from job",
        "with t as (select 1) select * from t",
        "with due as not materialized (select 1) select * from due",
        "create unlogged table job ()",
        "create or replace function f() returns void",
        "alter table job add x int",
        "drop schema leasework cascade",
        "listen leasework",
        "set local lock_timeout = '1s'",
        "copy job (id) from stdin",
        "show server_version_num",
        "SET statement_timeout TO 0",
    ],
)
def test_the_sql_rule_catches(sql):
    assert code_rules.sql_in_python(f"x = {sql!r}")
    assert code_rules.sql_in_python(f"x = {sql.encode()!r}")


@pytest.mark.parametrize(
    "prose",
    [
        "Select the queue from the list.",
        "update",
        "Set recover_within to 15",
        "set recover_within to 15 seconds or more",
        "Update the schedule and set its time zone.",
        "with a lease that nobody holds",
        "create the schema",
        "drop it",
        "set it aside",
        "listen",
        "select a worker",
        "delete",
    ],
)
def test_the_sql_rule_lets_prose_pass(prose):
    assert not code_rules.sql_in_python(f"x = {prose!r}")


def test_the_sql_rule_reads_f_strings_and_exempts_docstrings():
    assert code_rules.sql_in_python('x = f"select {column} from {table}"')
    assert not code_rules.sql_in_python('def f():\n    "select 1"\n')


# -- size ----------------------------------------------------------------------------------------
def test_a_function_fits_a_screen():
    found = offences_of(code_rules.long_functions, package_files())
    assert not found, "\n".join(found)


def test_a_file_is_one_thing():
    inside = partial(code_rules.long_file, limit=code_rules.MAX_FILE_LINES)
    tests = partial(code_rules.long_file, limit=code_rules.MAX_TEST_FILE_LINES)
    found = offences_of(inside, package_files())
    found += offences_of(tests, tree.python_files(tree.TESTS))
    assert not found, "\n".join(found)


def test_the_size_rules_count_lines():
    sixty = "async def f():\n" + "    x = 1\n" * 59
    assert not code_rules.long_functions(sixty)
    assert code_rules.long_functions(sixty + "    y = 2\n")
    assert not code_rules.long_file("x\n" * 400, 400)
    assert code_rules.long_file("x\n" * 401, 400)


# -- errors --------------------------------------------------------------------------------------
def test_what_is_raised_is_a_value_of_errors_py():
    def rule(path):
        cli = (tree.PACKAGE / "cli", tree.LAB)
        may_exit = path.name == "__main__.py" or any(p in path.parents for p in cli)
        return partial(code_rules.builtin_raises, may_exit=may_exit)

    found = [what for p in package_files() for what in offences_of(rule(p), [p])]
    assert not found, "\n".join(found)


def test_the_error_rule_catches_builtins_and_knows_pythons_protocols():
    for bad in ("raise ValueError", "raise RuntimeError('x')", "raise NotImplementedError"):
        assert code_rules.builtin_raises(bad)
        assert code_rules.builtin_raises(f"def __getattr__(name):\n    {bad} from None")
    assert code_rules.builtin_raises("def get():\n    raise AttributeError('x')")
    assert not code_rules.builtin_raises("def __getattr__(n):\n    raise AttributeError(n)")
    assert not code_rules.builtin_raises("def __next__(self):\n    raise StopIteration")
    assert not code_rules.builtin_raises("raise UnknownTask('x')\nraise\nraise error")
    assert code_rules.builtin_raises("raise SystemExit(1)")
    assert not code_rules.builtin_raises("raise SystemExit(1)", may_exit=True)


# -- tests wait for events -----------------------------------------------------------------------
def test_no_test_sleeps_and_hopes():
    files = [p for p in tree.python_files(tree.TESTS) if tree.SUPPORT not in p.parents]
    assert not (found := offences_of(code_rules.long_sleeps, files)), "\n".join(found)


def test_the_sleep_rule_catches_each_spelling():
    for bad in (
        "import time\ntime.sleep(1)",
        "import asyncio as a\nasync def f():\n    await a.sleep(0.2)",
        "from time import sleep\nsleep(2 * 0.5)",
        "from asyncio import sleep as nap\nnap(delay=3)",
        "import time\ntime.sleep(secs=-(-1))",
    ):
        assert code_rules.long_sleeps(bad), bad
    for good in ("import time\ntime.sleep(0.05)", "import time\ntime.sleep(x)", "job.sleep(9)"):
        assert not code_rules.long_sleeps(good), good


# -- words ---------------------------------------------------------------------------------------
def test_every_public_name_has_a_docstring():
    # the reference reads the texts of type aliases, and fails where there is none
    names = [n for n in leasework.__all__ if isinstance(getattr(leasework, n), type)]
    bare = [n for n in names if not code_rules.has_docstring(n, getattr(leasework, n))]
    assert not bare, f"no docstring: {bare}"


def test_every_package_says_what_belongs_there():
    inits = [p for p in package_files() if p.name == "__init__.py"]
    bare = [tree.short(p) for p in inits if not ast.get_docstring(ast.parse(p.read_text("utf-8")))]
    assert len(inits) > 20 and not bare, f"no docstring: {bare}"


def test_the_docstring_rule_sees_through_inherited_and_generated_ones():
    from dataclasses import dataclass

    class Base:
        """Words."""

    class Child(Base):
        pass

    @dataclass
    class Point:
        x: int

    assert code_rules.has_docstring("Base", Base)
    assert code_rules.has_docstring("VERSION", "1.0")
    assert not code_rules.has_docstring("Child", Child)
    assert not code_rules.has_docstring("Point", Point)
    assert not code_rules.has_docstring("f", lambda: None)


def test_no_tracked_file_names_a_path_of_one_machine():
    files = [p for p in tree.tracked_files() if b"\0" not in p.read_bytes()[:8192]]
    found = [
        f"{tree.short(p)}:{line}: {what}"
        for p in files
        for line, what in code_rules.machine_paths(p.read_text(errors="replace"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", ["work/main", "tmp/bash_jobs.0/x", "farm/a"])
def test_the_path_rule_catches(path):
    assert code_rules.machine_paths(f"see '/{path}'")
    assert not code_rules.machine_paths(f"see https://example.org/{path} and some/{path}")


def test_every_environment_variable_of_ours_is_declared():
    for path in tree.tracked_files():
        if path.suffix in (".py", ".md", ".toml", ".yml", ".css", "") and path.name != "LICENSE":
            names = re.findall(r"\bLEASEWORK_[A-Z0-9_]*[A-Z0-9]\b", path.read_text("utf-8"))
            check_variables(dict.fromkeys(names, ""))


def test_a_variable_that_is_not_declared_is_caught():
    with pytest.raises(ConfigError):
        check_variables({"LEASEWORK" + "_UNDECLARED": ""})
