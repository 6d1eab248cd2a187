"""The figures of the documentation are those of the reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.pages import filled
from bench.process import ROOT
from bench.report import Result, write_json

PAGES = sorted((ROOT / "docs").rglob("*.md"))


def test_what_stands_between_the_marks_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.argv", ["bench", "drain", "--json", "here.json", "--jobs", "7"])
    result = Result("Drain", "7 jobs", {"rate": "jobs/s"}, "ref")
    result.add("ref", {"rate": 5})
    result.add("ours", {"rate": 10})
    write_json(tmp_path / "one.json", [result], {})
    page = "before\n\n<!-- bench one -->\nold figures\n<!-- end -->\n\nafter\n"
    anew = filled(page, tmp_path)
    assert "old figures" not in anew
    assert "`python -m bench drain --jobs 7`\n\nDrain: 7 jobs; one round, " in anew
    assert "| ours | 10 (2.00) |\n" in anew
    assert anew.startswith("before\n") and anew.endswith("<!-- end -->\n\nafter\n")
    assert filled(anew, tmp_path) == anew


def test_the_pages_show_the_reports():
    marked = [page for page in PAGES if "<!-- bench " in page.read_text()]
    assert marked
    for page in marked:
        assert filled(page.read_text()) == page.read_text(), f"python -m bench page {page}"


def test_each_report_says_where_it_is_from():
    for path in (ROOT / "bench" / "results").glob("*.json"):
        report = json.loads(path.read_text())
        assert "dirty" not in report["machine"]["commit"], path
