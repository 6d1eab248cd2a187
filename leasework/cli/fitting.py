"""Fits tables to the width of a terminal, with one line per row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

GAP = "  "


class Column(Struct, frozen=True):
    """A heading, and a function that gives a row's value."""

    heading: str
    show: Callable[[dict[str, Any]], Any]
    rank: int = 0
    """When there is too little room, the column with the highest rank goes first; rank 0 stays."""
    cut: int = 0
    """Text that may be cut to this many characters, with an ellipsis at the end."""
    short: int = 0
    """An id that may be shortened to this many characters, or more where the ids need them to
    differ. Commands accept the beginning of an id."""


class Fitted(Struct, frozen=True):
    """The lines of a table, and the headings of the columns that were left out."""

    heading: str
    lines: list[str]
    left_out: list[str]
    shortened: bool


def fit(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> Fitted:
    """``cells``: a list for each row. No line is longer than ``width``."""
    from rich.cells import cell_len

    whole = [
        max(cell_len(text) for text in (column.heading, *(row[n] for row in cells)))
        for n, column in enumerate(columns)
    ]
    least = [
        _least(column, whole[n], [row[n] for row in cells]) for n, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    empty = {n for n in shown if all(row[n] == "-" for row in cells)}
    while _room(width, shown, least) < 0 and any(columns[n].rank for n in shown):
        shown.remove(max(shown, key=lambda n: (columns[n].rank > 0, n in empty, columns[n].rank)))
    widths = _widths(columns, shown, least, whole, _room(width, shown, least))
    ids = {n for n in shown if columns[n].short}

    def line(texts: Sequence[str]) -> str:
        parts = [_cut(texts[n], widths[n], mark=n not in ids) for n in shown]
        return _cut(GAP.join(parts).rstrip(), width)

    return Fitted(
        line([column.heading for column in columns]),
        [line(row) for row in cells],
        [column.heading for n, column in enumerate(columns) if n not in shown],
        any(widths[n] < whole[n] for n in shown),
    )


def _least(column: Column, whole: int, texts: Sequence[str]) -> int:
    least = _distinct(texts, column.short) if column.short else column.cut or whole
    return min(whole, max(len(column.heading), least))


def _distinct(ids: Sequence[str], least: int) -> int:
    """The least number of characters that tells the ids apart and ends none in a separator."""
    different = set(ids)
    length = least
    while len({text[:length] for text in different}) < len(different):
        length += 1
    while any(text[length - 1 : length] in ("-", ":") for text in different if len(text) > length):
        length += 1
    return length


def _room(width: int, shown: Sequence[int], least: Sequence[int]) -> int:
    return width - sum(least[n] for n in shown) - len(GAP) * (len(shown) - 1)


def _widths(
    columns: Sequence[Column],
    shown: Sequence[int],
    least: Sequence[int],
    whole: Sequence[int],
    room: int,
) -> dict[int, int]:
    """Gives spare room to text columns first, the most important one before the others."""
    widths = {n: least[n] for n in shown}
    for n in sorted(shown, key=lambda n: (columns[n].short > 0, columns[n].rank)):
        more = max(0, min(room, whole[n] - least[n]))
        if columns[n].short and more < whole[n] - least[n]:
            continue  # an id is shown whole or short
        widths[n] += more
        room -= more
    return widths


def _cut(text: str, width: int, *, mark: bool = True) -> str:
    """Pad or cut to exactly this width; the caller strips the end of a line."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width or not mark:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1).rstrip() + "…"
