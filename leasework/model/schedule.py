"""The moments of a schedule: a cron expression, an interval, or one moment.

They do not depend on where the walk over them starts, so all processes see the same ticks. cronsim
parses the expressions and walks *naive* local time. The conversion to UTC is our own, because
cronsim's loses ticks if the shift is half an hour (Australia/Lord_Howe), fires a six-field fixed
time twice, and can go back when it starts in the second pass.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from cronsim.explain import explain

from leasework.errors import BadSchedule, suggest
from leasework.model.moments import Duration, in_seconds, is_number, storable_moment

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The default anchor of an interval, the same in all processes."""

MIN_EVERY_SECONDS = 1.0
MAX_EVERY_SECONDS = 10 * 366 * 86_400.0
MAX_EXPRESSION_CHARS = 200

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_CRON_HELP = (
    "Five fields, minute (0-59) hour (0-23) day-of-month (1-31, L, LW) month (1-12, JAN-DEC) "
    "day-of-week (0-7, SUN-SAT, 1#2, 5L), or six with second (0-59) first"
)
_WIDTHS = (60, 60, 24, 31, 12, 7)
"""Of the fields, with seconds."""
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# Files of the zone database that differ between machines, or that count leap seconds.
_NOT_ZONES = ("localtime", "posixrules", "Factory", "posix/", "right/")


class Spec(ABC):
    """The moments of a schedule. Frozen, comparable, and convertible to and from JSON."""

    @abstractmethod
    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first moment strictly after ``instant`` (aware), in UTC; None: never again."""

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Yield the moments strictly after ``instant`` (aware), in order. They may never end."""
        moment = self.next_after(instant)
        while moment is not None:
            yield moment
            moment = self.next_after(moment)

    @abstractmethod
    def describe(self) -> str:
        """Describe it in words."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return a JSON object that :meth:`from_json` turns back into an equal value."""

    def first_at(self, now: datetime) -> datetime | None:
        """Return the first fire time of a schedule that is registered at ``now``."""
        return self.next_after(now)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Spec:
        """Read a Spec. Raises :class:`BadSchedule` for what :meth:`to_json` would not write."""
        kinds: dict[str, type[Spec]] = {"cron": Cron, "every": Every, "once": Once}
        try:
            given = {str(name): value for name, value in data.items() if name != "kind"}
            for name in given.keys() & {"at", "anchor"}:
                given[name] = datetime.fromisoformat(given[name])
            spec = kinds[data["kind"]](**given)
            if spec.to_json().keys() == data.keys():
                return spec
        except (AttributeError, KeyError, TypeError, ValueError):
            pass
        raise BadSchedule(
            "this is no schedule as this version of leasework stores it",
            got=data,
            do="If a newer version has stored it, upgrade this process; else define it again",
        )


@dataclass(frozen=True)
class Cron(Spec):
    """A cron expression of five fields, or six with seconds first. ``timezone``: an IANA name."""

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", _check_expression(self.expression))
        _check_zone(self.timezone)

    def next_after(self, instant: datetime) -> datetime | None:
        return _next_moment(self.expression, self.timezone, _utc("the instant", instant))

    def describe(self) -> str:
        try:
            words = explain(self.expression)
        except (ValueError, IndexError, KeyError, AttributeError):
            words = self.expression  # explain() knows less than the parser
        return f"{words} ({self.timezone})"

    def to_json(self) -> dict[str, Any]:
        return {"kind": "cron", "expression": self.expression, "timezone": self.timezone}


@dataclass(frozen=True)
class Every(Spec):
    """The moments ``anchor`` + k times ``seconds``, for every whole k, even below 0: the anchor is
    a phase, not a start. In UTC, without time zone and daylight saving."""

    seconds: float
    anchor: datetime = EPOCH

    def __post_init__(self) -> None:
        got = in_seconds(self.seconds)
        if not is_number(got, MIN_EVERY_SECONDS, MAX_EVERY_SECONDS):
            raise BadSchedule(
                f"an interval is a number of seconds from 1 to {MAX_EVERY_SECONDS:,.0f}",
                got=got,
                do="Pass a number, such as seconds=30",
            )
        object.__setattr__(self, "seconds", timedelta(seconds=got).total_seconds())
        object.__setattr__(self, "anchor", _utc("the anchor", self.anchor))

    def next_after(self, instant: datetime) -> datetime | None:
        period = timedelta(seconds=self.seconds)
        count = (_utc("the instant", instant) - self.anchor) // period
        try:
            return self.anchor + (count + 1) * period
        except OverflowError:
            return None

    def describe(self) -> str:
        words = "every " + _words(self.seconds)
        return words if self.anchor == EPOCH else f"{words}, counted from {_show(self.anchor)}"

    def to_json(self) -> dict[str, Any]:
        return {"kind": "every", "seconds": self.seconds, "anchor": self.anchor.isoformat()}


@dataclass(frozen=True)
class Once(Spec):
    """One moment."""

    at: datetime

    def __post_init__(self) -> None:
        at = _utc("the time", self.at)
        if not storable_moment(at):
            raise BadSchedule("the time must be from the year 2 to 9998", got=at.isoformat())
        object.__setattr__(self, "at", at)

    def next_after(self, instant: datetime) -> datetime | None:
        return self.at if _utc("the instant", instant) < self.at else None

    def first_at(self, now: datetime) -> datetime | None:
        """Return the moment, even if it is past: then the missed-tick policy decides."""
        return self.at

    def describe(self) -> str:
        return f"once at {_show(self.at)}"

    def to_json(self) -> dict[str, Any]:
        return {"kind": "once", "at": self.at.isoformat()}


def cron(expression: str, timezone: str = "UTC") -> Spec:
    spec = Cron(expression, timezone)
    fields = spec.expression.split()
    for field, width in zip(fields, _WIDTHS[-len(fields) :], strict=True):
        for term in field.split(","):
            step = term.partition("/")[2]
            if step and int(step) > width:  # stored specs are not checked: they must go on
                raise BadSchedule(
                    "a step is longer than its field",
                    got=expression,
                    do="Use an interval: every=…, or @app.every(seconds=…)",
                )
    return spec


def every(*, seconds: Duration, anchor: datetime | None = None) -> Spec:
    return Every(in_seconds(seconds), EPOCH if anchor is None else anchor)


def once(*, at: datetime) -> Spec:
    return Once(at)


def _is_fixed(expression: str) -> bool:
    """Return whether neither minute nor hour begins with a star, which is Debian's test."""
    minute, hour = expression.split()[-5:-3]
    return not minute.startswith("*") and not hour.startswith("*")


def _next_fixed(expression: str, zone: ZoneInfo, start: datetime) -> datetime | None:
    # The UTC times never decrease (first pass, or the gap's end). So the first one after `start` is
    # the answer, and local times with the same instant count once.
    for local in _local_times(expression, _local(start, zone)):
        fire = local.replace(tzinfo=zone).astimezone(UTC)
        if _local(fire, zone) != local:  # no such local time: fold=1 is before the gap, 0 after
            before = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
            fire = _shift_between(zone, before, fire) or fire
        if fire > start:
            return fire
    return None


def _next_matching(expression: str, zone: ZoneInfo, start: datetime) -> datetime | None:
    local = _local(start, zone)
    shift = _shift_between(zone, start, start + _DAY)
    if shift is not None:
        # Up to the shift, local time is continuous; after it, the search restarts. Later shifts
        # cannot repeat a local time that has passed.
        ahead = next(_local_times(expression, local), None)
        if ahead is None:
            return None
        fire = (ahead - (local - start.replace(tzinfo=None))).replace(tzinfo=UTC)
        if fire < shift:
            return fire
        start, local = shift - _SECOND, _local(shift, zone) - _SECOND
    for ahead in _local_times(expression, local):
        for fold in (0, 1):
            fire = ahead.replace(tzinfo=zone, fold=fold).astimezone(UTC)
            if fire > start and _local(fire, zone) == ahead:
                return fire
    return None


def _local(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None)


def _shift_between(zone: ZoneInfo, low: datetime, high: datetime) -> datetime | None:
    """Return the UTC instant in (low, high] at which the zone's offset changed; None if the offsets
    are equal. Zones shift on whole seconds, and not twice a day."""
    old = low.astimezone(zone).utcoffset()
    if high.astimezone(zone).utcoffset() == old:
        return None
    base = low.replace(microsecond=0)
    before, after = 0, math.ceil((high - base) / _SECOND)
    while after - before > 1:
        middle = (before + after) // 2
        if (base + middle * _SECOND).astimezone(zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return base + after * _SECOND


def _local_times(expression: str, local: datetime) -> Iterator[datetime]:
    """Yield the matching naive local times after ``local``."""
    walk = copy.copy(_parse(expression))
    walk.dt = local.replace(microsecond=0)
    return walk


@lru_cache(maxsize=4096)
def _next_moment(expression: str, timezone: str, start: datetime) -> datetime | None:
    """Cached, because many schedules may have the same moment, such as a report for each customer
    at seven."""
    zone = ZoneInfo(timezone)
    try:
        if _is_fixed(expression):
            return _next_fixed(expression, zone, start)
        return _next_matching(expression, zone, start)
    except OverflowError:  # after the year 9999
        return None


@lru_cache(maxsize=1024)
def _parse(expression: str) -> CronSim:
    """Parse an expression once; callers copy it. Parsing costs more than a step, and a CronSim is
    its own cursor. The copies share the field sets, which are only read."""
    return CronSim(expression, datetime(2000, 1, 1))


def _check_expression(expression: object) -> str:
    if not isinstance(expression, str):
        raise BadSchedule("a cron expression is text", got=expression, do=_CRON_HELP)
    if len(expression) > MAX_EXPRESSION_CHARS:
        limit = f"At most {MAX_EXPRESSION_CHARS} characters"
        raise BadSchedule("the cron expression is too long", got=expression, do=limit)
    return _canonical(expression)


@lru_cache(maxsize=1024)
def _canonical(expression: str) -> str:
    """Return the canonical spelling. Cached, because a schedule is read at each tick."""
    text = " ".join(expression.upper().split())
    if text.startswith("@"):
        alias = text.lower()
        if alias not in _ALIASES:
            raise BadSchedule("the alias is unknown", got=expression, do=suggest(alias, _ALIASES))
        text = _ALIASES[alias]
    try:
        _parse(text)
    except CronSimError as error:
        reason = str(error)
        what = f"the cron expression cannot be read: {reason[:1].lower()}{reason[1:]}"
        raise BadSchedule(what, got=expression, do=_CRON_HELP) from None
    # cronsim searches 50 years. From 2000, these have a 29th of February on every weekday.
    if next(_local_times(text, datetime(2000, 1, 1)), None) is None:
        raise BadSchedule(
            "the cron expression never fires",
            got=expression,
            do="Change the day or the month: no month in the expression has that day",
        )
    return text


def _check_zone(name: object) -> None:
    if not isinstance(name, str):
        do = "Pass a name such as 'Europe/Berlin' or 'UTC'"
        raise BadSchedule("a time zone is a name", got=name, do=do)
    try:
        if not name.startswith(_NOT_ZONES):
            ZoneInfo(name)
            return
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass  # missing, a path, or a folder such as 'America'
    do = "Use an IANA name, like 'Europe/Berlin', or 'UTC'"
    raise BadSchedule("the time zone is unknown", got=name, do=do)


def _utc(what: str, moment: object) -> datetime:
    if not isinstance(moment, datetime):
        do = "Pass a datetime with a time zone"
        raise BadSchedule(f"{what} is not a datetime", got=moment, do=do)
    if moment.utcoffset() is None:
        raise BadSchedule(
            f"{what} has no time zone",
            got=moment.isoformat(),
            do="Say which: datetime(…, tzinfo=UTC), or tzinfo=ZoneInfo('Asia/Seoul')",
        )
    if moment.tzinfo is UTC:
        return moment
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise BadSchedule(f"{what} is out of range", got=moment.isoformat()) from None


def _show(moment: datetime) -> str:
    return f"{moment.replace(tzinfo=None).isoformat(sep=' ')} UTC"


def _words(seconds: float) -> str:
    units = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
    unit, size = next(u for u in units if seconds % u[1] == 0 or u[1] == 1)
    count = seconds / size
    return unit if count == 1 else f"{count:.10g} {unit}s"
