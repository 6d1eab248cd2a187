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


def fit(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int
) -> tuple[list[str], list[str], bool]:
    """Return the lines with the headings first, the headings that were left out, and whether a text
    was shortened. ``cells``: a list for each row. No line is longer than ``width``."""
    from rich.cells import cell_len, set_cell_size

    texts = [[column.heading, *(row[n] for row in cells)] for n, column in enumerate(columns)]
    whole = [max(map(cell_len, column)) for column in texts]
    widths = [
        min(whole[n], max(len(column.heading), _least(column, texts[n][1:]) or whole[n]))
        for n, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))

    def room() -> int:
        return width - sum(widths[n] for n in shown) - len(GAP) * (len(shown) - 1)

    def worth(n: int) -> tuple[bool, bool, int]:
        empty = set(texts[n][1:]) == {"-"}
        return columns[n].rank > 0, empty, columns[n].rank

    while room() < 0 and any(columns[n].rank for n in shown):
        shown.remove(max(shown, key=worth))
    # spare room is for text columns first, the most important one before the others
    for n in sorted(shown, key=lambda n: (columns[n].short > 0, columns[n].rank)):
        more = min(max(0, room()), whole[n] - widths[n])
        if not columns[n].short or widths[n] + more == whole[n]:  # an id is whole or short
            widths[n] += more

    def cut(text: str, size: int, mark: bool) -> str:
        if cell_len(text) <= size or not mark:
            return set_cell_size(text, size)
        return set_cell_size(text, size - 1).rstrip() + "…"

    lines = []
    for place in range(len(cells) + 1):
        parts = [cut(texts[n][place], widths[n], not columns[n].short) for n in shown]
        line = GAP.join(parts).rstrip()
        lines.append(cut(line, width, True) if cell_len(line) > width else line)
    left_out = [column.heading for n, column in enumerate(columns) if n not in shown]
    return lines, left_out, any(widths[n] < whole[n] for n in shown)


def _least(column: Column, texts: Sequence[str]) -> int:
    """The least width of a column that may be shortened. Of ids, it is the least number of
    characters that tells them apart and ends none in a separator."""
    if not column.short:
        return column.cut
    different = set(texts)
    length = column.short
    while len({text[:length] for text in different}) < len(different):
        length += 1
    while any(text[length - 1 : length] in ("-", ":") for text in different if len(text) > length):
        length += 1
    return length
