"""Tables for people (rich on a terminal, plain elsewhere) and JSON for tools."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import click

Column = tuple[str, Callable[[dict[str, Any]], Any]]
"""A heading, and what a row shows under it."""


def fancy() -> bool:
    """Colours and boxes: on a terminal that did not ask for less."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def show_json(value: Any, *, line: bool = False) -> None:
    """One JSON document; ``line``: on one line."""
    text = json.dumps(value, default=_plain, ensure_ascii=False, indent=None if line else 2)
    click.echo(text)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return str(value)


def show_table(rows: Sequence[dict[str, Any]], columns: Sequence[Column], empty: str) -> None:
    """One line a row; ``empty`` is said when there is none."""
    if not rows:
        click.echo(empty)
        return
    headings = [heading for heading, _ in columns]
    cells = [[text(value(row)) for _, value in columns] for row in rows]
    if fancy():
        _rich_table(headings, cells)
    else:
        _plain_table([[heading.upper() for heading in headings], *cells])


def show_pairs(pairs: Mapping[str, Any]) -> None:
    """A name and a value a line."""
    cells = [[name, text(value)] for name, value in pairs.items()]
    width = max((len(name) for name, _ in cells), default=0)
    for name, value in cells:
        click.echo(f"{name:<{width}}  {value}")


def heading(words: str, *, good: bool | None = None) -> None:
    """A line that stands out: green or red where that means something."""
    colour = {True: "green", False: "red", None: None}[good]
    click.echo(click.style(words, fg=colour, bold=True) if fancy() else words)


def _rich_table(headings: list[str], cells: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for title in headings:
        table.add_column(title, overflow="fold", no_wrap=title.lower() == "id")
    for row in cells:
        table.add_row(*[Text(cell) for cell in row])  # Text: nothing in it is markup
    Console(highlight=False).print(table)


def _plain_table(lines: list[list[str]]) -> None:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        click.echo("  ".join(padded).rstrip())


def text(value: Any) -> str:
    """A value on one line. What could steer a terminal is shown, not sent."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        local = value.astimezone()
        # a terminal is narrow and here; a file may be read anywhere
        return (local.replace(tzinfo=None) if fancy() else local).isoformat(" ", "seconds")
    if isinstance(value, (dict, list, tuple)):
        value = json.dumps(value, default=_plain, ensure_ascii=False)
    words = str(value)
    if words.isprintable():
        return words
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)
