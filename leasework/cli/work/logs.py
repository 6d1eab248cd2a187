"""The log format of command-line processes: text or JSON, with the worker id on each line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from leasework.errors import without_secrets
from leasework.telemetry import JsonFormatter


class _TextFormatter(logging.Formatter):
    """``time level message worker=…``, with the logger's name if it is not leasework's."""

    def format(self, record: logging.LogRecord) -> str:
        line = without_secrets(super().format(record))
        if not getattr(record, "add_worker", False):
            return line
        first, newline, rest = line.partition("\n")
        source = "" if record.name.startswith("leasework") else f" logger={record.name}"
        return f"{first} worker={record.worker_id}{source}{newline}{rest}"  # type: ignore[attr-defined]


def _is_printed(record: logging.LogRecord) -> bool:
    """Whether a handler of the application's own, below the root, prints the line here too."""
    logger = logging.getLogger(record.name)
    while logger.parent:
        for handler in logger.handlers:
            here = getattr(handler, "stream", None) in (sys.stdout, sys.stderr)
            if here and record.levelno >= handler.level and handler.filter(record):
                return True
        logger = logger.parent
    return False


def set_up_logging(form: str, worker_id: Callable[[], str]) -> None:
    """``form``: as in ``Settings.log``. Keeps a root logger that the application has set up, and
    leaves lines to the handlers of its other loggers."""
    root = logging.getLogger()
    if root.handlers:
        return

    def name_worker(record: logging.LogRecord) -> bool:
        """Add the worker id to lines of other libraries and of the user's code."""
        if not hasattr(record, "worker_id"):
            record.worker_id = worker_id()
            record.add_worker = True
        return True

    handler = logging.StreamHandler()
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(_TextFormatter("%(asctime)s %(levelname)-7s %(message)s"))
    handler.addFilter(lambda record: not _is_printed(record))
    handler.addFilter(name_worker)
    root.addHandler(handler)
    root.setLevel(logging.INFO)
