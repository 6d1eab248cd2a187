"""What `make release` asks for: one version, texts that agree, and nothing else in a wheel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leasework.version import VERSION
from scripts import release
from tests.arch import tree

INFO = "leasework-1.0.dist-info/"
CORE = ["leasework/__init__.py", "leasework/py.typed", f"{INFO}METADATA", f"{INFO}licenses/LICENSE"]
WHEEL = Path("leasework-1.0-py3-none-any.whl")


def test_the_version_the_laboratory_and_the_changelog_agree():
    assert release.version() == VERSION
    assert release.disagreements(None) == []


def test_a_tag_must_name_the_version():
    assert [line for line in release.disagreements("v9.9.9") if "v9.9.9" in line]


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The files that name a version, in a folder where a test may change them."""
    migration = "leasework/pg/sql/migrations/0001_initial.sql"
    texts = ("pyproject.toml", "lab/pyproject.toml", "CHANGELOG.md", "leasework/version.py")
    for name in (*texts, migration):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((tree.ROOT / name).read_text("utf-8"))
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "before", "after", "said"),
    [
        ("lab/pyproject.toml", f'version = "{VERSION}"', 'version = "9.9.9"', "leasework-lab is"),
        ("lab/pyproject.toml", f"[embedded,web]=={VERSION}", ">=0.1", "leasework-lab needs"),
        ("leasework/version.py", VERSION, "9.9.9", "no section 9.9.9"),
        ("pyproject.toml", 'dynamic = ["version"]', 'version = "1"', "a version of its own"),
    ],
)
def test_a_version_that_differs_is_caught(copied, name, before, after, said):
    text = (copied / name).read_text("utf-8")
    assert before in text
    (copied / name).write_text(text.replace(before, after, 1))
    assert [line for line in release.disagreements(None) if said in line]


def test_a_changelog_that_calls_the_tagged_version_unreleased_is_caught(copied):
    page = copied / "CHANGELOG.md"
    page.write_text(f"# Changelog\n\n## {VERSION} (unreleased)\n")
    assert [line for line in release.disagreements(f"v{VERSION}") if "write the date" in line]
    page.write_text(f"# Changelog\n\n## {VERSION} (2026-12-01)\n")
    freeze(copied, 1)
    assert release.disagreements(f"v{VERSION}") == []


def freeze(folder: Path, number: int) -> None:
    file = folder / "tests" / "upgrade" / "released" / "0.1.0.sql"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'-- {{"migrations": {number}}}\nbegin;\n')


def test_a_tag_needs_the_frozen_schema_of_its_newest_migration(copied):
    def said() -> list[str]:
        return [line for line in release.disagreements(f"v{VERSION}") if "frozen" in line]

    assert said() and not [line for line in release.disagreements(None) if "frozen" in line]
    freeze(copied, 1)
    assert said() == []
    migrations = copied / "leasework/pg/sql/migrations"
    (migrations / "0002_next.sql").write_text("select 1;")
    assert "migration 2" in said()[0]


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ([], ""),
        (["tests/data.json"], "has tests/data.json"),
        (["leasework/sub/" + "test_x.py"], "has leasework/sub/" + "test_x.py"),
        (["leasework_lab/__init__.py"], "has leasework_lab/__init__.py"),
        (["leasework/__pycache__/a.pyc"], "has leasework/__pycache__/a.pyc"),
    ],
)
def test_what_a_wheel_must_not_have_is_caught(extra, said):
    wrong = release.wrong_contents(WHEEL, [*CORE, *extra], "1.0")
    assert [line.partition(" ")[2] for line in wrong] == ([said] if said else [])


def test_what_a_distribution_lacks_is_caught():
    assert len(release.wrong_contents(WHEEL, [], "1.0")) == 3
    assert len(release.wrong_contents(Path("leasework-1.0.tar.gz"), [], "1.0")) == 5
    assert "not of version 1.1" in release.wrong_contents(WHEEL, [], "1.1")[-1]


def test_a_list_of_components_that_names_this_machine_or_a_tool_is_caught():
    good = {"components": [{"name": name} for name in ("msgspec", "psycopg", "click")]}
    assert release.wrong_components(good, json.dumps(good)) == []
    bad = {"components": [{"name": "pip", "url": "file:///x"}]}
    wrong = release.wrong_components(bad, json.dumps(bad))
    assert "has pip" in wrong and "names file://" in wrong and "lacks click" in wrong


def test_the_laboratory_has_the_licence_of_the_core():
    licence = (tree.ROOT / "LICENSE").read_bytes()
    assert (tree.ROOT / "lab" / "LICENSE").read_bytes() == licence
