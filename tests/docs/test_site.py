"""The site's pages: every link leads somewhere, every page is in the navigation, and what is made
from the code is as the code is now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_CODE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)


def links(page: Path) -> list[str]:
    text = re.sub(r"`[^`\n]*`", "", _CODE.sub("", page.read_text("utf-8")))
    return [link for link in _LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """As the site and GitHub make them of headings."""
    text = _CODE.sub("", page.read_text("utf-8"))
    found = set()
    for heading in re.findall(r"^#+\s+(.+?)\s*#*$", text, re.M):
        words = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
        found.add(words.strip().replace(" ", "-"))
    return found


def broken(page: Path, root: Path) -> list[str]:
    """Links that lead nowhere; of a page of the site, also those that lead out of it."""
    wrong = []
    inside = page.is_relative_to(root / "docs")
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            wrong.append(f"{link}: is not there")
        elif inside and not target.is_relative_to(root / "docs"):
            wrong.append(f"{link}: leads out of the site; name the file instead")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            wrong.append(f"{link}: has no such heading")
    return [f"{page.relative_to(root)}: {text}" for text in wrong]


def test_every_link_leads_somewhere():
    wrong = [text for page in PAGES for text in broken(page, ROOT)]
    assert not wrong, "\n".join(wrong)


def test_a_link_that_leads_nowhere_or_out_of_the_site_is_caught(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# R\n")
    page = tmp_path / "docs" / "a.md"
    page.write_text(
        "# A b\n[x](#a-b) [y](#no) [z](../README.md) [n](no.md) `[c](d)` [w](http://w)\n"
    )
    assert [text.split(": ")[1] for text in broken(page, tmp_path)] == [
        "#no",
        "../README.md",
        "no.md",
    ]


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page():
    entries = set(re.findall(r": ([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    there = {page for page in there if not page.startswith("adr/")} | (there & entries)
    assert not (lost := sorted(entries - there)), f"mkdocs.yml names what is not there: {lost}"
    assert not (forgotten := sorted(there - entries)), f"not in mkdocs.yml: {forgotten}"


MADE = ["api.md", "settings.md", "errors.md", "cli.md", "views.md", "events.md", "metrics.md"]


@pytest.mark.parametrize("name", MADE)
def test_the_reference_is_as_the_code_is(name, made):
    assert (DOCS / "reference" / name).read_text("utf-8") == made[name], "run: make reference"


@pytest.fixture(scope="module")
def made(request, postgres) -> dict[str, str]:
    return reference.on_server(postgres.dsn)
