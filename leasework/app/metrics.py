"""The text of the metrics endpoint, for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from leasework.app.home import Home
from leasework.errors import ConfigError
from leasework.tuning import Tuning
from leasework.watch.metric_names import COUNTER, HISTOGRAM, METRICS
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
        """Return the metrics as text. Raises ConfigError without the extra ``prometheus``."""
        async with self._lock:
            now = self._app.env.boot_now()
            if now - self._made_at >= Tuning.metrics_seconds:
                operator = await self._app.operator("", "metrics")
                sheet = await read_metrics(operator.inspector, operator.reports)
                self._text, self._made_at = as_text(sheet), self._app.env.boot_now()
        return self._text


def as_text(sheet: Sheet) -> bytes:
    """Return the sheet in Prometheus' text format. Raises ConfigError without the package
    prometheus-client."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )
    except ImportError:
        raise ConfigError(
            "metrics need the package prometheus-client",
            do="install leasework's extra 'prometheus'",
        ) from None

    class Collector:
        def collect(self) -> Iterable[Any]:
            for name, known in METRICS.items():
                if known.kind == HISTOGRAM:
                    told = HistogramMetricFamily(name, known.meaning, labels=known.labels)
                    for labels in sorted(sheet.durations.get(name, {})):
                        buckets, total = sheet.histogram(name, labels)
                        told.add_metric(labels, buckets, total)
                    yield told
                    continue
                kind = CounterMetricFamily if known.kind == COUNTER else GaugeMetricFamily
                family = kind(name, known.meaning, labels=known.labels)
                for labels, value in sorted(sheet.series.get(name, {}).items()):
                    family.add_metric(labels, value)
                yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())  # type: ignore[arg-type, unused-ignore]
    return generate_latest(registry)
