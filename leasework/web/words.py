"""How figures and times are formatted."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from leasework.errors import error_line
from leasework.model.filter import quoted
from leasework.model.masking import masked
from leasework.model.moments import duration, sparkline
from leasework.store.rows import EventView

NONE = "\N{EN DASH}"


def ago(moment: datetime | None, now: datetime) -> str:
    """``3 min ago``, ``in 2 h``."""
    if moment is None:
        return NONE
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{short(seconds)} ago" if seconds > 0 else f"in {short(-seconds)}"


def short(seconds: float | None) -> str:
    """``12 ms``, ``3.4 s``, ``5 min``, ``2 h 7 min``."""
    if seconds is None:
        return NONE
    if seconds < 0:
        return "0 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if 60 <= seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return duration(seconds)


def count(number: int | None, cap: int | None = None) -> str:
    """``12,345``, or ``10,000+`` where counting stopped."""
    if number is None:
        return NONE
    return f"{number:,}" + ("+" if cap is not None and number >= cap else "")


def full(moment: datetime | None) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if moment else NONE


def pretty(value: Any) -> str:
    """JSON with secrets masked."""
    return json.dumps(masked(value), indent=2, ensure_ascii=False, default=str)


def inline(value: Any, most: int = 80) -> str:
    """Arguments on one line, with secrets masked."""
    if not isinstance(value, dict):
        return "…" if value is None else str(masked(value))
    text = "  ".join(
        f"{name}={part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)}"
        for name, part in masked(value).items()
    )
    return text if len(text) <= most else text[: most - 1] + "…"


def term(number: int | None) -> str:
    """``7``, or ``2.7`` after a promotion: the timeline and the number."""
    if number is None:
        return NONE
    timeline, rest = divmod(number, 1 << 32)
    return f"{timeline + 1}.{rest}" if timeline else str(rest)


def fields(row: EventView) -> list[tuple[str, str]]:
    """An event's fields as names and text, without empty ones."""
    shown = masked(row.fields or {})
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in shown.items()
        if value not in (None, "", [], {})
    ]


FILTERS: dict[str, Callable[..., Any]] = {
    "ago": ago, "short": short, "count": count, "full": full, "quoted": quoted,
    "pretty": pretty, "inline": inline, "error_line": error_line, "term": term, "fields": fields,
    "sparkline": sparkline,
}  # fmt: skip
