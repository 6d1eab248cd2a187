"""SVG charts, drawn on the server without scripts. The style sheet's classes give the colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from markupsafe import Markup
from msgspec import Struct

from leasework.web.words import full

_BAR_WIDTH, _BAR_HEIGHT = 720, 96
DAY = timedelta(days=1)


def _group(title: str, marks: Iterable[Markup]) -> Markup:
    """Marks with a title, which the browser shows when the mouse is over them."""
    return Markup("<g><title>{}</title>{}</g>").format(title, Markup("").join(marks))


def bars(
    values: Sequence[tuple[float, float]],
    since: datetime,
    seconds: float = 60.0,
    kinds: tuple[str, str] = ("done", "bad"),
    said: Sequence[str] = (),
    title: str = "",
) -> Markup:
    """Two values of each part of ``seconds``, one on top of the other. Without ``said``, they are
    finished jobs and failed attempts."""
    top = max((low + high for low, high in values), default=0)
    step = _BAR_WIDTH / max(len(values), 1)
    scale = (_BAR_HEIGHT - 4) / (top or 1)
    parts = [Markup('<line class="axis" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
        _BAR_WIDTH, _BAR_HEIGHT - 0.5, _BAR_HEIGHT - 0.5)]  # fmt: skip
    for place, pair in enumerate(values):
        at = since.astimezone(UTC) + timedelta(seconds=place * seconds)
        x, base = place * step, float(_BAR_HEIGHT)
        marks = [_rect("hover", x, 0, step, _BAR_HEIGHT)]
        for name, value in zip(kinds, pair, strict=True):
            if value:
                height = max(value * scale, 1.5)
                base -= height
                marks.append(_rect(name, x + 1.5, base, step - 3, height, 1.5))
        words = said[place] if said else f"{pair[0]:,} finished, {pair[1]:,} failed attempts"
        parts.append(_group(f"{full(at)}: {words}", marks))
    label = title or f"Finished jobs and failed attempts, at most {top:,} at a time"
    return _svg("bars", _BAR_WIDTH, _BAR_HEIGHT, label, parts)


def _rect(
    name: str, x: float, y: float, width: float, height: float, radius: float = 0.0
) -> Markup:
    return Markup(
        '<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" rx="{:.1f}"/>'
    ).format(name, x, y, max(width, 0.5), height, radius)


def _svg(name: str, width: int, height: int, label: str, parts: Iterable[Markup]) -> Markup:
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="none">'
        "{}</svg>"
    ).format(name, width, height, label, Markup("").join(parts))


class Bar(Struct, frozen=True):
    """A stretch of one term in one row."""

    first: datetime
    last: datetime
    kind: str
    """``held`` (in the database), ``believed`` (by the process's account), ``overlap``; in the
    demo: ``alive``, ``hurt`` (a fault is active), ``struck`` (the process ended)."""
    says: str


def term_bars(parts: Sequence[Bar], start: datetime, end: datetime, name: str) -> Markup:
    """One node's terms of one election."""
    width, height = 960, 34
    whole = max((end - start).total_seconds(), 1.0)

    def place(moment: datetime) -> float:
        return (min(max(moment, start), end) - start).total_seconds() / whole * width

    heights = {
        "held": (6.0, 15.0), "believed": (24.0, 5.0), "overlap": (0.0, float(height)),
        "alive": (10.0, 7.0), "hurt": (1.0, 4.0), "struck": (1.0, 25.0),
    }  # fmt: skip
    drawn = [
        Markup('<line class="axis" x1="0" x2="{}" y1="{}" y2="{}"/>').format(width, height, height)
    ]
    for bar in sorted(parts, key=lambda part: part.kind == "overlap"):
        y, tall = heights[bar.kind]
        x = place(bar.first)
        span = max(place(bar.last) - x, 6.0 if bar.kind == "overlap" else 2.0)
        drawn.append(_group(bar.says, [_rect(bar.kind, x, y, span, tall, 2)]))
    return _svg("terms", width, height, f"Terms of {name}", drawn)


def ruler(start: datetime, end: datetime, marks: int = 4) -> list[str]:
    """The labels under a row, evenly spaced."""
    step, start = (end - start) / marks, start.astimezone(UTC)
    form = "%H:%M" if end - start < 2 * DAY else "%d %b %H:%M"
    label = Markup('<time datetime="{:%Y-%m-%dT%H:%M:%SZ}">{}</time>').format
    times = [start + step * n for n in range(marks)]
    return [*(label(at, at.strftime(form)) for at in times), "now"]
