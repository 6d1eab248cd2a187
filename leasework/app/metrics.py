"""The text of the metrics endpoint, for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from leasework.app.home import Home
from leasework.tuning import Tuning
from leasework.watch.metric_names import METRICS
from leasework.watch.metrics import Sheet, read_metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """Makes the endpoint's text, in one event loop."""

    def __init__(self, app: Home) -> None:
        self._app = app
        self._lock = asyncio.Lock()
        self._made_at = float("-inf")
        self._text = b""

    async def text(self) -> bytes:
        """Return the metrics as text."""
        async with self._lock:
            now = self._app.env.boot_now()
            if now - self._made_at >= Tuning.metrics_seconds:
                operator = await self._app.operator("", "metrics")
                sheet = await read_metrics(operator.inspector, operator.reports)
                self._text, self._made_at = as_text(sheet), self._app.env.boot_now()
        return self._text


def as_text(sheet: Sheet) -> bytes:
    """Return the sheet in Prometheus' text format."""
    lines = []
    for name, known in METRICS.items():
        lines += [f"# HELP {name} {known.meaning}", f"# TYPE {name} {known.kind}"]
        for queue in sorted(sheet.durations.get(name, {})):
            buckets, total = sheet.histogram(name, queue)
            for bound, count in buckets:
                lines.append(_sample(f"{name}_bucket", {"le": bound, "queue": queue}, count))
            lines.append(_sample(f"{name}_count", {"queue": queue}, buckets[-1][1]))
            lines.append(_sample(f"{name}_sum", {"queue": queue}, total))
        for labels, value in sorted(sheet.series.get(name, {}).items()):
            lines.append(_sample(name, dict(zip(known.labels, labels, strict=True)), value))
    return "\n".join([*lines, ""]).encode()


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
    return f"{name}{{{pairs}}} {value}" if pairs else f"{name} {value}"
