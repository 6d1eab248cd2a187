"""Keeps the last lines that a handler logs, so that they can be recorded with an attempt."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from leasework.errors import storable, without_secrets
from leasework.jobs.running import Claim
from leasework.own_tasks import HANDLER
from leasework.tuning import Tuning


def keep_lines() -> None:
    """Keep the records that handlers create from now on, of any logger. Handlers and levels of the
    application's loggers stay as they are. Lines that no handler prints get a time and a level."""
    if logging.lastResort and logging.lastResort.formatter is None:
        form = "%(asctime)s %(levelname)-7s %(message)s"
        logging.lastResort.setFormatter(logging.Formatter(form))
    make = logging.getLogRecordFactory()
    if not (isinstance(make, partial) and make.func is _noted):
        logging.setLogRecordFactory(partial(_noted, make))


def _noted(make: Any, *args: Any, **kwargs: Any) -> logging.LogRecord:
    record: logging.LogRecord = make(*args, **kwargs)
    claim = HANDLER.get()
    if isinstance(claim, Claim) and record.name != "leasework":
        if claim.lines is None:
            claim.lines = deque(maxlen=Tuning.kept_lines)
        claim.lines.append(record)
    return record


def lines_of(claim: Claim, limit: int) -> str | None:
    """Return the last lines as text of at most ``limit`` characters, with secrets masked."""
    text = claim.log or ""
    for record in claim.lines or ():
        with suppress(Exception):  # arguments that do not fit the message
            at = datetime.fromtimestamp(record.created, UTC)
            said = without_secrets(record.getMessage())  # whole: a part may hide what is a secret
            text += f"{at:%H:%M:%S.%f} {record.levelname} {record.name}: {said}\n"
    return storable(text[-limit:]) or None
