"""A bar chart as SVG, from the JSON of a run; readable on light and dark pages."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

import click

_WIDTH, _LEFT, _RIGHT, _BAR, _GAP, _TOP = 720, 150, 110, 22, 10, 46
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-weight:600;font-size:15px}"
    ".b{fill:#8c959f}.us{fill:#1f883d}"
    "@media(prefers-color-scheme:dark){text{fill:#9198a1}.b{fill:#656c76}.us{fill:#3fb950}}"
)


def bars(title: str, values: dict[str, float], unit: str, ours: str = "leasework") -> str:
    """One bar a name, the longest first if more is better or not: the order is the caller's."""
    height = _TOP + len(values) * (_BAR + _GAP) + 6
    most = max(values.values()) or 1
    room = _WIDTH - _LEFT - _RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' aria-label="{escape(title)}"><style>{_STYLE}</style>',
        f'<text class="t" x="8" y="22">{escape(title)}</text>',
    ]
    for row, (name, value) in enumerate(values.items()):
        y = _TOP + row * (_BAR + _GAP)
        width = max(1.0, value / most * room)
        kind = "us" if name == ours else "b"
        shown = f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
        parts += [
            f'<text x="{_LEFT - 8}" y="{y + 16}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}"/>',
            f'<text x="{_LEFT + width + 8:.1f}" y="{y + 16}">{shown} {escape(unit)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def values_of(report: dict[str, Any], measure: str, key: str) -> dict[str, float]:
    """Contender → median, of the first result whose name begins so; zeros are left out (what a
    contender does not do on this server)."""
    for result in report["results"]:
        if result["measure"].startswith(measure):
            medians = {
                name: figures["median"][key] for name, figures in result["contenders"].items()
            }
            known = {name: value for name, value in medians.items() if value and value == value}
            return dict(sorted(known.items(), key=lambda item: -item[1]))
    raise click.UsageError(f"no result is named {measure!r}")


@click.command("chart")
@click.argument("report", type=click.Path(exists=True, path_type=Path))
@click.argument("measure")
@click.argument("key")
@click.argument("svg", type=click.Path(path_type=Path))
@click.option("--title", required=True)
@click.option("--unit", default="")
def command(report: Path, measure: str, key: str, svg: Path, title: str, unit: str) -> None:
    """Draw the medians of one column of a JSON report."""
    values = values_of(json.loads(report.read_text()), measure, key)
    svg.write_text(bars(title, values, unit))
