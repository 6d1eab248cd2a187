"""The tables of a page, from the reports in bench/results: what stands between the marks
``<!-- bench NAME -->`` and ``<!-- end -->`` is written anew."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from bench.process import ROOT
from bench.report import against, headline, table

REPORTS = ROOT / "bench" / "results"
_MARKED = re.compile(r"(<!-- bench ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str, reports: Path = REPORTS) -> str:
    """The page with its tables as the reports are now."""
    return _MARKED.sub(lambda m: f"{m[1]}{_block(reports / f'{m[2]}.json')}\n{m[3]}", page)


def _block(path: Path) -> str:
    report = json.loads(path.read_text())
    commit = report["machine"]["commit"]
    parts = [f"`{report['command']}`"]
    for result in report["results"]:
        parts += [f"{result['measure']}: {headline(result)}; commit {commit}.", table(result)]
        parts += [beside] if (beside := against(result)) else []
    if len(report.get("parties", [])) > 2:
        parts.append("\n".join(f"- {party}" for party in report["parties"]))
    return "\n\n".join(parts) + "\n"


@click.command("page")
@click.argument("page", type=click.Path(exists=True, path_type=Path))
def command(page: Path) -> None:
    """Write the tables of a page anew."""
    page.write_text(filled(page.read_text()))
