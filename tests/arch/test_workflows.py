"""The workflows run what the Makefile has, on the versions that the project supports."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import release
from tests.arch import tree
from tests.arch.test_pythons import supported
from tests.support.postgres import VERSIONS

FORGE = tree.ROOT / ".github"
FLOWS = sorted((FORGE / "workflows").glob("*.yml"))
FORMS = sorted(p for p in (FORGE / "ISSUE_TEMPLATE").glob("*.yml") if p.stem != "config")
OTHER_PROGRAMS = {"git", "sha256sum", "gh"}
NOT_YET_PINNED = {"pypa/gh-action-pypi-publish@release/v1"}
"""RELEASING.md asks for its commit before the first release."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


def flow(name: str) -> Any:
    loaded = yaml.safe_load((FORGE / "workflows" / f"{name}.yml").read_text("utf-8"))
    return {("on" if key is True else key): value for key, value in loaded.items()}


def steps(loaded: Any) -> Iterator[dict[str, Any]]:
    for job in loaded["jobs"].values():
        yield from job["steps"]


def targets() -> set[str]:
    makefile = (tree.ROOT / "Makefile").read_text("utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.M))


def unknown(line: str) -> str | None:
    """What a workflow's command runs that is not there, or None."""
    words = shlex.split(re.sub(r"\$\{[^}]*\}", "x", line))
    if words[0] == "make":
        named = [word for word in words[1:] if "=" not in word]
        return next((word for word in named if word not in targets()), None)
    if words[0] in OTHER_PROGRAMS:
        return None
    return None if (tree.ROOT / words[0]).is_file() else words[0]


@pytest.mark.parametrize("path", FLOWS, ids=lambda p: p.stem)
def test_each_command_is_in_the_makefile(path: Path):
    lines = [step["run"] for step in steps(flow(path.stem)) if "run" in step]
    assert lines
    assert [line for line in lines if unknown(line)] == []


def test_a_command_that_is_not_there_is_caught():
    assert unknown("make realease") == "realease"
    assert unknown('make release ARGS="${TAG:+--tag $TAG}"') is None
    assert unknown(".ci/run") is None and unknown(".ci/runs") == ".ci/runs"


def test_the_tests_run_on_every_supported_version():
    matrix = flow("tests")["jobs"]["fast"]["strategy"]["matrix"]
    assert matrix["python"] == supported()
    assert sorted(matrix["postgres"]) == sorted(VERSIONS)
    environment = flow("tests")["jobs"]["fast"]["env"]
    assert environment["LEASEWORK_TEST_POSTGRES"] == "${{ matrix.postgres }}"


def test_nothing_runs_on_a_version_that_is_not_supported():
    lowest = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert lowest == f">={supported()[0]}"
    named = []
    for path in FLOWS:
        for step in steps(flow(path.stem)):
            named += str(step.get("with", {}).get("python-version", "")).split()
        named += re.findall(r"image: python:([\d.]+)-", path.read_text("utf-8"))
    assert named and set(named) <= set(supported())


def test_a_release_is_tried_on_every_supported_python():
    (setup,) = [s for s in steps(flow("release")) if "setup-python" in s.get("uses", "")]
    assert setup["with"]["python-version"].split() == supported()
    (line,) = [s["run"] for s in flow("release")["jobs"]["build"]["steps"] if "run" in s]
    assert re.findall(r"--python (\S+)", line) == supported()  # which fails if one is not there


def test_what_is_published_is_what_make_release_writes():
    jobs = flow("release")["jobs"]
    with_ = [step.get("with", {}) for step in jobs["publish"]["steps"]]
    assert release.DIST.relative_to(tree.ROOT).as_posix() == "dist"
    assert [w["packages-dir"] for w in with_ if "packages-dir" in w] == ["dist/packages"]
    assert [w["subject-checksums"] for w in with_ if "subject-checksums" in w] == [
        "dist/SHA256SUMS"
    ]
    source = Path(release.__file__).read_text("utf-8")
    assert all(name in source for name in ('"packages"', '"SHA256SUMS"', ".cdx.json"))


@pytest.mark.parametrize("path", FLOWS, ids=lambda p: p.stem)
def test_a_workflow_has_no_secret_and_few_rights(path: Path):
    assert "secrets." not in path.read_text("utf-8")
    loaded = flow(path.stem)
    assert loaded["permissions"] == {"contents": "read"}
    for name, job in loaded["jobs"].items():
        assert job["timeout-minutes"] <= 120
        assert ("permissions" in job) == (path.stem in ("release", "docs") and name == "publish")


def test_the_site_is_published_only_where_the_owner_has_switched_it_on():
    publish = flow("docs")["jobs"]["publish"]
    assert publish["if"] == "github.event_name == 'push' && vars.PUBLISH_DOCS == 'true'"
    assert publish["permissions"] == {"contents": "write"}


@pytest.mark.parametrize("path", FLOWS, ids=lambda p: p.stem)
def test_each_action_is_named_by_its_commit(path: Path):
    used = {step["uses"] for step in steps(flow(path.stem)) if "uses" in step}
    loose = {name for name in used if not _COMMIT.fullmatch(name.partition("@")[2])}
    assert loose <= NOT_YET_PINNED


def test_publishing_waits_for_the_environment_and_happens_for_tags_alone():
    loaded = flow("release")
    publish = loaded["jobs"]["publish"]
    assert publish["environment"] == "release" and publish["needs"] == "build"
    assert publish["if"] == "github.event_name == 'push'"
    assert loaded["on"]["push"] == {"tags": ["v*"]}


@pytest.mark.parametrize("path", FORMS, ids=lambda p: p.stem)
def test_a_form_has_a_title_and_fields_with_names_of_their_own(path: Path):
    form = yaml.safe_load(path.read_text("utf-8"))
    assert form["name"] and form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    kinds = {"textarea", "input", "checkboxes", "dropdown"}
    assert {field["type"] for field in fields} <= kinds
    names = [field["id"] for field in fields]
    assert len(names) == len(set(names)) and all(field["attributes"]["label"] for field in fields)


def test_the_files_that_the_forms_and_pages_of_the_repository_name_are_there():
    named = re.compile(r"(?<![\w/])(?:docs|tests|\.github|lab)/[\w/.-]*\w")
    pages = [tree.ROOT / name for name in ("RELEASING.md", "SECURITY.md", "MAINTAINERS.md")]
    for path in [*FORMS, *FORGE.glob("*.md"), *pages]:
        for name in named.findall(path.read_text("utf-8")):
            assert (tree.ROOT / name).exists(), f"{path.name} names {name}"
