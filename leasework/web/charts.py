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


def bars(minutes: Sequence[tuple[int, int]], since: datetime) -> Markup:
    """Completed jobs of each minute, with the failed attempts on top."""
    top = max((done + failed for done, failed in minutes), default=0)
    step = _BAR_WIDTH / max(len(minutes), 1)
    scale = (_BAR_HEIGHT - 4) / max(top, 1)
    parts = [Markup('<line class="axis" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
        _BAR_WIDTH, _BAR_HEIGHT - 0.5, _BAR_HEIGHT - 0.5)]  # fmt: skip
    for place, (done, failed) in enumerate(minutes):
        at = since.astimezone(UTC) + timedelta(minutes=place)
        x, base = place * step, float(_BAR_HEIGHT)
        marks = [_rect("hover", x, 0, step, _BAR_HEIGHT)]
        for name, value in (("done", done), ("bad", failed)):
            if value:
                height = max(value * scale, 1.5)
                base -= height
                marks.append(_rect(name, x + 1.5, base, step - 3, height, 1.5))
        said = f"{at:%H:%M} UTC: {done:,} completed, {failed:,} failed attempts"
        parts.append(_group(said, marks))
    label = f"Completed jobs and failed attempts in the last hour, at most {top:,} per minute"
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


def strip(moments: Sequence[datetime], start: datetime, crowded: bool, words: str) -> Markup:
    """A schedule's next 24 hours: a mark for each moment, or a band if there are too many."""
    width, height = 960, 22
    parts = [
        Markup('<line class="hour" x1="{0}" x2="{0}" y1="0" y2="{1}"/>').format(x, height)
        for x in range(0, width + 1, width // 8)
    ]
    if crowded:
        parts.append(_rect("many", 0, 6, width, height - 12, 3))
    for moment in () if crowded else moments:
        x = (moment - start) / DAY * width
        mark = _rect("mark", x - 1.5, 3, 3, height - 6, 1.5)
        parts.append(_group(full(moment), [mark]))
    return _svg("strip", width, height, f"The next 24 hours: {words}", parts)


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
    step = (end - start) / marks
    start = start.astimezone(UTC)
    return [f"{(start + step * n):%H:%M}" for n in range(marks)] + ["now"]
