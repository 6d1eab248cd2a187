"""Limits on how many jobs run at once and on how often jobs start, by key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import UUID

from leasework.env import Clock
from leasework.errors import BadJob, ConfigError, storable
from leasework.model.moments import Duration, in_seconds, is_number

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_MOST_COST = 1e9
_KEY_BYTES = 400
"""Of a key or a tenant in UTF-8, a bar or a percent sign counted as three: an index has them."""
MOST_LIMITS = 2
"""Limits of one job: one for all jobs, and one by key, is what applications need."""

FromArguments = str | Callable[[Mapping[str, Any]], Any]
"""The name of an argument, or a function of all arguments by name."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``count`` starts in ``per`` seconds, or starts that cost ``count`` together: a token
    bucket. ``burst`` is what may start at once after idleness (default: ``count``); 1 spaces the
    starts. In any time, at most ``burst`` and the rate's share of that time start. Raises
    ConfigError."""

    count: float
    per: Duration
    burst: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "per", in_seconds(self.per))
        if self.burst is None:
            object.__setattr__(self, "burst", max(1.0, self.count))
        if not is_number(self.count, 1e-6, _MOST_COST):
            raise ConfigError("a rate's count must be above 0", got=self.count)
        if not is_number(self.per, 0.001, 366 * 86400):
            raise ConfigError("a rate's per must be seconds, up to a year", got=self.per)
        if not is_number(self.burst, 1, _MOST_COST):
            raise ConfigError("a rate's burst must be 1 or more", got=self.burst)

    @property
    def per_second(self) -> float:
        """The count that starts in one second."""
        return self.count / float(self.per)  # type: ignore[arg-type]


class Throttled(Exception):
    """Raise or return this from a handler when the other side refuses more requests, as with an
    HTTP status 429: ``raise vendor.throttled(retry_after=20)``. No job of the limit (of the job's
    key, if it has one) starts for that time. The job goes back, and the attempt does not count."""

    def __init__(self, limit: str, seconds: float) -> None:
        super().__init__(limit, seconds)  # so that it can be pickled
        self.limit = limit
        self.seconds = seconds

    def __str__(self) -> str:
        return f"throttled for {self.seconds:g} s by the limit {self.limit!r}"

    def key_in(self, lane: str | None) -> str | None:
        """The key of its limit in a job's lane, or None if the job does not have the limit."""
        keys = (lane or "").split("|")[1:]
        return next((key for key in keys if key.partition(":")[0] == self.limit), None)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of an application. Make one with :meth:`App.limit`."""

    name: str
    concurrency: int | None = None
    rate: Rate | None = None
    key: FromArguments | None = None
    cost: FromArguments | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            rule = "1 to 100 letters, digits, dots, dashes and underscores"
            raise ConfigError(f"a limit's name must be {rule}", got=self.name)
        if self.concurrency is not None and not is_number(self.concurrency, 1, 1e6, whole=True):
            raise ConfigError("concurrency must be a whole number from 1", got=self.concurrency)
        if not isinstance(self.rate, Rate | None):
            raise ConfigError("rate must be a Rate", got=self.rate, do="Rate(10, per=1.0)")
        if self.concurrency is None and self.rate is None:
            raise ConfigError(
                f"the limit {self.name!r} limits nothing",
                do="Give concurrency=2, or rate=Rate(10, per=1.0), or both",
            )
        if self.cost is not None and self.rate is None:
            raise ConfigError("cost needs a rate", do="Give rate=Rate(90_000, per=60)")
        for label in ("key", "cost"):
            check_source(label, getattr(self, label))

    def throttled(self, retry_after: Duration | str) -> Throttled:
        """What a handler raises when the other side refuses more requests for ``retry_after``
        seconds: see :class:`Throttled`. It may be the text of HTTP's header ``Retry-After``:
        seconds, or a date. Raises BadJob for a time out of range."""
        given: Any = _of_header(retry_after) if isinstance(retry_after, str) else retry_after
        seconds = in_seconds(given)
        if not is_number(seconds, 0, 366 * 86400):
            raise BadJob(
                "retry_after must be seconds from 0 to a year, or what a header Retry-After says",
                got=repr(retry_after),
            )
        return Throttled(self.name, float(seconds))

    def use(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """What a job with these arguments uses of it, as ``leasework.enqueue`` takes it. None:
        its key is None, and the limit does not apply. Raises BadJob."""
        used: dict[str, Any] = {"limit": self.name}
        if self.key is not None:
            key = key_text(f"the key of the limit {self.name!r}", _read(self.key, arguments))
            if key is None:
                return None
            used["key"] = key
        if self.cost is not None:
            cost = _read(self.cost, arguments)
            most = self.rate.burst if self.rate and self.rate.burst else _MOST_COST
            if not is_number(cost, 0, most):
                raise BadJob(
                    f"the cost for the limit {self.name!r} must be a number from 0 to its burst of "
                    f"{most:g}",
                    got=cost,
                    do="Split the work, or raise the limit's burst",
                )
            used["cost"] = cost
        return used

    def names(self) -> list[str]:
        """The arguments that it needs."""
        return [source for source in (self.key, self.cost) if isinstance(source, str)]


def tenant_of(source: FromArguments, arguments: Mapping[str, Any]) -> str:
    """The tenant of a job of a fair queue; empty if it has none. Raises BadJob."""
    return key_text("a tenant", _read(source, arguments)) or ""


def key_text(label: str, value: object) -> str | None:
    """A key's text, as SQL writes the same JSON value. Raises BadJob."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | UUID):
        raise BadJob(
            f"{label} must be text, a whole number, a UUID or None",
            got=value,
            do="Give a function that returns one: key=lambda arguments: …",
        )
    text = str(value)
    size = len(text.replace("%", "%25").replace("|", "%7C").encode("utf-8", "surrogatepass"))
    if not 0 < size <= _KEY_BYTES or storable(text) != text:
        raise BadJob(
            f"{label} must have 1 to {_KEY_BYTES} bytes, without NUL", got=f"{size} bytes: {text!r}"
        )
    return text


def _of_header(text: str) -> float | None:
    """The seconds of a header ``Retry-After`` (RFC 9110). None: it is not one."""
    if text.strip().isdecimal():
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (until - Clock().wall_now()).total_seconds())


def check_source(label: str, source: object) -> None:
    """Raises ConfigError."""
    if source is not None and not isinstance(source, str) and not callable(source):
        raise ConfigError(
            f"{label} must be the name of an argument, or a function of the arguments",
            got=source,
            do=f"{label}='customer_id', or {label}=lambda arguments: arguments['customer'].id",
        )


def _read(source: FromArguments, arguments: Mapping[str, Any]) -> Any:
    if callable(source):
        return source(arguments)
    return arguments.get(source)
