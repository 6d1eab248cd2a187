"""Tables for people (fitted to a terminal, complete elsewhere) and JSON for tools."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click
from msgspec import Struct, structs

from leasework.cli.fitting import GAP, Column, fit


def fancy() -> bool:
    """Whether to use colours: on a terminal, unless NO_COLOR or TERM=dumb is set."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def show_json(value: Any, *, line: bool = False) -> None:
    """Print a JSON document; ``line``: on one line."""
    text = json.dumps(value, default=_plain, ensure_ascii=False, indent=None if line else 2)
    click.echo(text)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Struct):
        return structs.asdict(value)
    return str(value)


def show_table(
    rows: Sequence[dict[str, Any]], columns: Sequence[Column], empty: str, *, wide: bool = False
) -> None:
    """Print one line per row, fitted to a terminal's width; all columns in full elsewhere or if
    ``wide``. ``empty`` is printed if there are no rows."""
    if not rows:
        click.echo(empty)
        return
    cells = [[text(column.show(row)) for column in columns] for row in rows]
    if wide or not sys.stdout.isatty():
        _plain_table([[column.heading.upper() for column in columns], *cells])
        return
    width = shutil.get_terminal_size().columns
    fitted = fit(columns, cells, width)
    heading(fitted.heading)
    for line in fitted.lines:
        click.echo(line)
    if fitted.left_out or fitted.shortened:
        hidden = f"Hidden: {', '.join(fitted.left_out)}. " if fitted.left_out else ""
        note = f"{hidden}Use --wide for everything."
        click.echo(click.style(note, dim=True) if fancy() else note)


def counted(number: int, what: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def show_pairs(pairs: Mapping[str, Any]) -> None:
    """Print one name and value per line."""
    cells = [[name, text(value)] for name, value in pairs.items()]
    width = max((len(name) for name, _ in cells), default=0)
    for (name, value), given in zip(cells, pairs.values(), strict=True):
        if isinstance(given, str) and "\n" in given:  # a traceback
            value = f"\n{' ' * (width + 2)}".join(map(text, given.rstrip().split("\n")))
        click.echo(f"{name:<{width}}  {value}")


def heading(words: str, *, good: bool | None = None) -> None:
    """Print a line that stands out; green or red if ``good`` is given."""
    colour = {True: "green", False: "red", None: None}[good]
    click.echo(click.style(words, fg=colour, bold=True) if fancy() else words)


def _plain_table(lines: list[list[str]]) -> None:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        click.echo(GAP.join(padded).rstrip())


def text(value: Any) -> str:
    """A value on one line. Characters that could control a terminal are escaped."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        local = value.astimezone()
        # a terminal is narrow and in this time zone; a file may be read anywhere
        here = sys.stdout.isatty()
        return (local.replace(tzinfo=None) if here else local).isoformat(" ", "seconds")
    if isinstance(value, (dict, list, tuple)):
        value = json.dumps(value, default=_plain, ensure_ascii=False)
    words = str(value)
    if words.isprintable():
        return words
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)
