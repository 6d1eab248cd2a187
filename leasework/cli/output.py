"""Tables for people (fitted to a terminal, complete elsewhere) and JSON for tools."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

import click
from msgspec import Struct, structs

from leasework.cli.fitting import Column, fit

EXIT_NO_READER = 141
"""The status that a shell reports for a program that SIGPIPE ended."""


def prepare_streams() -> None:
    """Escape characters that an encoding lacks, and discard what is written to a closed stream."""
    for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
        if getattr(sys, name) is None:  # by >&-; a connection would otherwise get its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def output_errors() -> Iterator[None]:
    """End the process if its output cannot be written: as SIGPIPE would if the reader has gone, and
    otherwise with a message and status 1."""
    try:
        yield
    except OSError as error:
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") != click.echo.__module__:
            traceback.print_exc()  # click says nothing about a broken pipe of the application's own
            sys.exit(1)
        if error.errno != errno.EPIPE:
            words = f"leasework: the output could not be written: {error.strerror}"
            with suppress(OSError):
                click.echo(words, err=True)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # Python flushes again at the end
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        sys.exit(EXIT_NO_READER if error.errno == errno.EPIPE else 1)


def fancy() -> bool:
    """Whether to use colours: on a terminal, unless NO_COLOR or TERM=dumb is set."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def show_json(value: Any, indent: int | None = 2) -> None:
    """Print a JSON document; without ``indent``, on one line. It cannot control a terminal."""
    # Python's escapes for other encodings are not those of JSON
    ascii_only = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    words = json.dumps(value, default=plain, ensure_ascii=ascii_only, indent=indent)
    click.echo("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in words))


def plain(value: Any) -> Any:
    """What JSON has no type for."""
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
    narrow = sys.stdout.isatty() and not wide
    width = shutil.get_terminal_size().columns if narrow else sys.maxsize
    (first, *lines), left_out, shortened = fit(columns, cells, width)
    if narrow:
        heading(first)
    else:
        click.echo(first.upper())
    for line in lines:
        click.echo(line)
    if left_out or shortened:
        hidden = f"Hidden: {', '.join(left_out)}. " if left_out else ""
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
        value = json.dumps(value, default=plain, ensure_ascii=False)
    words = str(value)
    if words.isprintable():
        return words
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)
