"""The pages on stability and on upgrades say what the code, the changelog and the README say."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import psycopg
import pytest

from leasework import App
from leasework.errors import SchemaTooNew, SchemaTooOld
from leasework.pg.connection import pool
from leasework.pg.schema import migrate
from leasework.version import VERSION
from scripts import compatibility
from tests.arch import tree
from tests.arch.test_pythons import supported

DOCS = tree.ROOT / "docs"
STABILITY = (DOCS / "explanation" / "stability.md").read_text("utf-8")
UPGRADE = (DOCS / "howto" / "upgrade.md").read_text("utf-8")
README = (tree.ROOT / "README.md").read_text("utf-8")


def rows() -> compatibility.Versions:
    return compatibility.rows(UPGRADE)


def test_each_version_of_the_changelog_has_a_row():
    changes = (tree.ROOT / "CHANGELOG.md").read_text("utf-8")
    assert sorted(rows()) == sorted(re.findall(r"^## (\d+\.\d+\.\d+)", changes, re.M))


def test_each_migration_is_in_the_row_of_one_version():
    known = 0
    listed = []
    for numbers, min_known, old in rows().values():
        these = [m for m in migrate.MIGRATIONS if m.number in numbers]
        known = max([known, *(m.min_known for m in these)])
        assert min_known == known, f"min_known after migrations {numbers} is {known}"
        oldest = min(numbers, default=known)
        assert old in ("-", "beside", "**stop first**")
        assert old == "-" or (old == "**stop first**") == (known >= oldest)
        listed += numbers
    assert listed == [m.number for m in migrate.MIGRATIONS]


def test_the_supported_versions_are_those_of_the_readme():
    (said,) = re.findall(r"^leasework supports (Python .*?) \(tested on (.*?)\)", README, re.M)
    assert said[0] in " ".join(STABILITY.split())
    assert f"run on PostgreSQL {said[1]}," in " ".join(STABILITY.split())
    assert all(version in said[0] for version in supported())


def test_the_sql_functions_that_are_public_take_what_the_page_says(migrated):
    named = re.findall(r"`leasework\.(\w+)\(([\w, ]+)\)`", STABILITY)
    assert len(named) == 3
    with psycopg.connect(migrated) as connection:
        for name, types in named:
            query = "select pg_get_function_arguments(%s::regproc)"
            [taken] = connection.execute(query, (f"leasework.{name}",)).fetchone() or [""]
            first = [one.split(" DEFAULT")[0].split()[1] for one in taken.split(", ")]
            assert first[: len(types.split(", "))] == types.split(", "), taken


def test_every_page_of_the_reference_is_a_surface():
    pages = {page.name for page in (DOCS / "reference").glob("*.md")}
    assert pages == set(re.findall(r"\]\(\.\./reference/(\w+\.md)\)", STABILITY))


async def test_an_old_process_works_with_a_schema_that_it_does_not_fit_until_it_opens_a_connection(
    migrated,
):
    async def enqueue(app: App) -> None:
        await app.enqueue(app.task(name=f"work-{id(app)}")(lambda: None).job())

    old, other = App(migrated), App(migrated)
    await enqueue(old)
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(
            "insert into leasework.migration (number, name, min_known) values (9999, 'x', 9999)"
        )
    await old.enqueue(old.task(name="again")(lambda: None).job())
    with pytest.raises(SchemaTooNew):
        await enqueue(other)
    await old.close()
    await other.close()


def test_the_table_of_schemas_is_as_made():
    assert compatibility.made(UPGRADE) == UPGRADE, "run python -m scripts.compatibility"
    assert f"| {VERSION} |" in compatibility.table(rows())


def test_the_table_follows_the_rule_of_a_connection(monkeypatch):
    for known, number in itertools.product(range(1, 4), repeat=2):
        monkeypatch.setattr(pool, "SCHEMA_NUMBER", known)
        monkeypatch.setattr(migrate, "SCHEMA_NUMBER", known)
        for min_known in range(1, number + 1):
            said = compatibility.WORKS
            try:
                pool.check_schema(number, min_known)
            except (SchemaTooOld, SchemaTooNew) as error:
                said = f"`{type(error).__name__}`"
            assert compatibility.verdict(known, number, min_known) == said


def test_a_version_that_must_stop_first_divides_the_table():
    versions = {
        "0.1.0": ([1], 1, "-"),
        "0.1.1": ([], 1, "beside"),
        "0.2.0": ([2], 1, "beside"),
        "0.3.0": ([3], 3, "**stop first**"),
    }
    assert (
        compatibility.table(versions)
        == """\
| processes of | schema of 0.1.0 | schema of 0.1.1 | schema of 0.2.0 | schema of 0.3.0 |
| --- | --- | --- | --- | --- |
| 0.1.0 | works | works | works | `SchemaTooNew` |
| 0.1.1 | works | works | works | `SchemaTooNew` |
| 0.2.0 | `SchemaTooOld` | `SchemaTooOld` | works | `SchemaTooNew` |
| 0.3.0 | `SchemaTooOld` | `SchemaTooOld` | `SchemaTooOld` | works |
"""
    )


def test_the_pages_lead_to_each_other():
    assert "upgrade.md" in STABILITY and "stability.md" in UPGRADE
    for page in (Path("index.md"), Path("howto/deployment.md")):
        assert "upgrade.md" in (DOCS / page).read_text("utf-8")
