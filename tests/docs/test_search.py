"""The site is built, and its search finds the page that a reader looks for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
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


def test_each_page_has_the_menu_of_versions(site):
    for page in ("index.html", "howto/upgrade.html"):
        text = (site / page).read_text("utf-8")
        assert '"version":{"default":"latest","provider":"mike"}' in text


_NO_MORE = (9, 0)
"""Of two sections that are alike, the one with the word in more fields comes first."""


@dataclass(frozen=True)
class Index:
    """The sections of the site, and the search as the reader's browser does it.

    The search has no stemming: it finds a section if one of its words begins with the whole word
    that the reader typed. Words of headings come first, then words of the page's place in the
    menu, then words of the text; among them, those that are nearer to the beginning.
    """

    items: list[dict[str, Any]]
    separator: re.Pattern[str]

    def found(self, word: str) -> list[str]:
        """The places of the sections, the best first."""
        ranked = [(self._matches(item, word), item["location"]) for item in self.items]
        there = [(matches, place) for matches, place in ranked if matches]
        return [place for _, place in sorted(there, key=lambda one: [*one[0], _NO_MORE])]

    def _matches(self, item: dict[str, Any], word: str) -> list[tuple[int, int]]:
        """For each field with the word: the field's rank, and how many words are before it."""
        fields = (item["title"], " ".join(item["path"]), re.sub(r"<[^>]*>", " ", item["text"]))
        matches = []
        for rank, text in enumerate(fields):
            words = [part for part in self.separator.split(text.lower()) if part]
            hits = [n for n, one in enumerate(words) if one.startswith(word)]
            matches += [(rank, hits[0])] if hits else []
        return matches


@pytest.fixture(scope="module")
def index(site: Path) -> Index:
    made = json.loads((site / "search.json").read_text("utf-8"))
    return Index(made["items"], re.compile(made["config"]["separator"]))


@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("retry", "howto/jobs.html#retry-with-backoff"),
        ("unique", "howto/jobs.html#unique-jobs"),
        ("priority", "howto/jobs.html#priorities"),
        ("delay", "howto/jobs.html#delays"),
        ("result", "howto/jobs.html#results"),
        ("progress", "howto/jobs.html#progress"),
        ("timeout", "howto/jobs.html#timeouts"),
        ("slot", "howto/jobs.html#slots"),
        ("middleware", "howto/jobs.html#middleware"),
        ("pause", "howto/schedules.html#pause-change-remove"),
        ("schedule", "howto/schedules.html"),
        ("lock", "howto/locks.html"),
        ("leader", "howto/leaders.html"),
        ("deadline", "howto/deadlines.html"),
        ("test", "howto/testing.html"),
        ("dashboard", "howto/dashboard.html"),
        ("probes", "howto/metrics.html"),
        ("gunicorn", "howto/web.html#gunicorn"),
        ("docker", "howto/deployment.html#docker"),
        ("kubernetes", "howto/deployment.html#kubernetes"),
        ("pgbouncer", "howto/deployment.html#pgbouncer"),
        ("backup", "howto/deployment.html#backup-and-restore"),
        ("flask", "howto/flask.html"),
        ("fastapi", "howto/fastapi.html"),
    ],
)
def test_the_first_section_that_a_whole_word_finds(index, word, place):
    assert index.found(word)[0] == place


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("retries", "howto/jobs.html"),
        ("backoff", "howto/jobs.html"),
        ("snooze", "howto/jobs.html"),
        ("cancel", "howto/jobs.html"),
        ("transaction", "howto/jobs.html"),
        ("failure", "howto/jobs.html"),
        ("systemd", "howto/deployment.html"),
        ("alembic", "howto/deployment.html"),
        ("django", "howto/django.html"),
        ("celery", "howto/from-celery.html"),
        ("rq", "howto/from-procrastinate-or-rq.html"),
    ],
)
def test_a_whole_word_finds_the_page_among_the_first(index, word, page):
    assert page in [place.partition("#")[0] for place in index.found(word)[:3]]


@pytest.mark.parametrize(
    "name", ["App.enqueue_many", "StoredSchedules.put", "leasework.integrations.flask.Leasework"]
)
def test_each_name_of_the_api_is_a_heading(index, name):
    places = [item["location"] for item in index.items if item["title"] == name]
    assert [place.partition("#")[0] for place in places] == ["reference/api.html"]


def test_a_word_that_is_nowhere_finds_nothing(index):
    assert index.found("zzyzx") == []


def test_the_search_has_no_stemming_and_prefers_headings():
    sections = [
        {"location": "a", "title": "Retries", "path": ["How to"], "text": "<p>retry</p>"},
        {"location": "b", "title": "App.retry", "path": [], "text": ""},
        {"location": "c", "title": "Retry", "path": [], "text": ""},
        {"location": "d", "title": "Retry", "path": ["Retrying"], "text": ""},
    ]
    index = Index(sections, re.compile(r"[\s.]+"))
    assert index.found("retry") == ["d", "c", "b", "a"]
    assert index.found("retries") == ["a"]
