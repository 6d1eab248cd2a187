"""The log format of command-line processes: text or JSON, with the worker id on each line."""

from __future__ import annotations

import logging
from collections.abc import Callable

from leasehold.errors import without_secrets
from leasehold.telemetry import JsonFormatter


class _NameWorker(logging.Filter):
    """Adds the worker id to lines of other libraries and of the user's code."""

    def __init__(self, worker_id: Callable[[], str]) -> None:
        super().__init__()
        self._worker_id = worker_id

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "worker_id"):
            record.worker_id = self._worker_id()
            record.add_worker = True
        return True


class _TextFormatter(logging.Formatter):
    """``time level message worker=…``, with the logger's name if it is not leasehold's."""

    def format(self, record: logging.LogRecord) -> str:
        line = without_secrets(super().format(record))
        if not getattr(record, "add_worker", False):
            return line
        first, newline, rest = line.partition("\n")
        source = "" if record.name.startswith("leasehold") else f" logger={record.name}"
        return f"{first} worker={record.worker_id}{source}{newline}{rest}"  # type: ignore[attr-defined]


def set_up_logging(form: str, worker_id: Callable[[], str]) -> None:
    """``form``: as in ``Settings.log``. Keeps a root logger that the application has set up."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(_TextFormatter("%(asctime)s %(levelname)-7s %(message)s"))
    handler.addFilter(_NameWorker(worker_id))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
