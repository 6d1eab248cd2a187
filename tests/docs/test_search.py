"""The site is built, and its search finds the page that a reader looks for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs`` builds it; a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    program = Path(sys.executable).parent / "zensical"
    built = subprocess.run(
        [program, "build", "--strict", "-f", "mkdocs.yml"],
        cwd=folder, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "build" / "site"


@pytest.fixture(scope="module")
def index(site: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((site / "search.json").read_text("utf-8"))["items"]
    return found


def found(index: list[dict[str, Any]], word: str) -> list[str]:
    """The pages with a heading that has a word beginning so. The search shows them first."""
    pages = []
    for item in index:
        if re.search(rf"\b{word}", item["title"], re.I):
            pages.append(item["location"].partition("#")[0])
    return pages


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("retr", "howto/jobs.html"),
        ("backoff", "howto/jobs.html"),
        ("unique", "howto/jobs.html"),
        ("priorit", "howto/jobs.html"),
        ("delay", "howto/jobs.html"),
        ("snooze", "howto/jobs.html"),
        ("cancel", "howto/jobs.html"),
        ("result", "howto/jobs.html"),
        ("progress", "howto/jobs.html"),
        ("timeout", "howto/jobs.html"),
        ("slot", "howto/jobs.html"),
        ("transaction", "howto/jobs.html"),
        ("pause", "howto/schedules.html"),
        ("test", "howto/testing.html"),
        ("middleware", "howto/jobs.html"),
        ("failure", "howto/jobs.html"),
        ("docker", "howto/deployment.html"),
        ("kubernetes", "howto/deployment.html"),
        ("systemd", "howto/deployment.html"),
        ("alembic", "howto/deployment.html"),
        ("pgbouncer", "howto/deployment.html"),
        ("backup", "howto/deployment.html"),
        ("flask", "howto/flask.html"),
        ("fastapi", "howto/fastapi.html"),
        ("django", "index.html"),
        ("celery", "howto/from-celery.html"),
        ("rq", "howto/from-procrastinate-or-rq.html"),
        ("enqueue_many", "reference/api.html"),
    ],
)
def test_searching_for_a_word_finds_the_page(index, word, page):
    assert page in found(index, word)


def test_a_word_that_no_heading_has_finds_nothing(index):
    assert found(index, "zzyzx") == []
