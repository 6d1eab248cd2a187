"""The filter language for jobs: ``state:running queue:mail -task:send* since:2h args.user_id:42``.
Text becomes a value, and then parameters of fixed statements. It never becomes SQL."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from string import hexdigits
from typing import Any, NamedTuple, get_args
from uuid import UUID

from msgspec import Struct

from leasework.config import Limits
from leasework.errors import BadFilter, BadJob, storable, suggest
from leasework.model import fingerprint
from leasework.model.moments import storable_moment
from leasework.model.states import StateName

LONGEST = 1000
"""The most characters of a filter."""
MOST_TERMS = 8
LEAST_DIGITS = 8
"""The fewest digits of the beginning of an id."""
SIMPLE = {"state": "state", "queue": "queue", "task": "task_name", "tag": "tags"}
"""The filters that ``app.jobs`` and ``leasework jobs`` also have, and their fields of JobRecord."""
KEYS = (*SIMPLE, "schedule", "signal", "error", "since", "until", "node", "id", "batch", "args.")
PATTERNS = ("queue", "task", "tag", "schedule", "signal", "error")
"""With ``args.``, those in which a star stands for anything. A leading ``-`` negates these, and
``state``. ``signal``: the job waits for this signal."""
STATES: tuple[str, ...] = get_args(StateName)
_WORD = re.compile(r"""\s*(?:(-?[A-Za-z_][^\s:"]*):)?("(?:[^"\\]|\\.)*"|[^\s"]\S*|)""")
_EXAMPLES = {
    "state": "running", "queue": "default", "id": "…", "node": "host:4711", "error": "refused",
    "since": "2h", "until": "2h", "batch": "…",
}  # fmt: skip
_FINGERPRINT = re.compile(rf"[0-9a-f]{{{fingerprint.DIGITS}}}")
_AGO = re.compile(r"(\d{1,9})(s|m|min|h|d)", re.ASCII)
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_LONGEST_AGO = 100 * 366 * 86400
_LOWEST, _HIGHEST = UUID(int=0), UUID(int=(1 << 128) - 1)


class Condition(NamedTuple):
    """A condition on text: ``task:send*``, ``-queue:mail``, ``error:refused``."""

    field: str
    """One of :data:`PATTERNS`, ``fingerprint``, or ``args.`` with a path."""
    pattern: str
    """As for LIKE; of a fingerprint the whole."""
    wanted: bool = True
    """False: no job that matches it."""


class JobFilter(Struct, frozen=True):
    """The conditions that a job must meet. None and empty match any job."""

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    node: str | None = None
    """A worker's id (host:pid:short-id) or its beginning, or a node's UUID."""
    first: UUID = _LOWEST
    last: UUID = _HIGHEST
    tag: str | None = None
    unfinished: bool = False
    """Leave out the jobs that have ended."""
    fingerprint: str | None = None
    """Of the last error. Then ``since`` and ``until`` are about the time of that failure."""
    since: datetime | int | None = None
    """When the job ended, or else began to run, or else was created: a time, or seconds ago."""
    until: datetime | int | None = None
    batch: UUID | None = None
    terms: tuple[Condition, ...] = ()
    not_states: tuple[str, ...] = ()

    @classmethod
    def only(
        cls,
        *,
        state: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
    ) -> JobFilter:
        """Make a filter of :data:`SIMPLE` alone. Raises BadJob for an unknown state, and for a
        value that is no text."""
        given: dict[str, object] = {"state": state, "queue": queue, "task": task, "tag": tag}
        for name, value in given.items():
            if value is not None and not isinstance(value, str):
                do = "Pass the task's name: task=send.name" if name == "task" else "Pass text"
                raise BadJob(f"{name} must be text", got=value, do=do)
        if state is not None and state not in STATES:
            raise BadJob("no such state", got=state, do=suggest(state, STATES))
        return cls(state=state, queue=queue, task=task, tag=tag)

    @property
    def is_relative(self) -> bool:
        """Whether it depends on the time at which it is applied."""
        return isinstance(self.since, int) or isinstance(self.until, int)

    def params(self, now: datetime | None = None) -> dict[str, object]:
        """The parameters of statements with ``{{job/_matches}}``, except the node. ``now`` is
        needed if the filter :attr:`is_relative`."""
        return {
            **{name: getattr(self, name) for name in SIMPLE},
            "fields": [term.field for term in self.terms],
            "patterns": [term.pattern for term in self.terms],
            "wants": [term.wanted for term in self.terms],
            "first": self.first,
            "last": self.last,
            "fingerprint": self.fingerprint,
            "batch": self.batch,
            "not_states": list(self.not_states),
            "since": _at(self.since, now),
            "until": _at(self.until, now),
        }


def parse(text: str, masked: re.Pattern[str] | None = None) -> JobFilter:
    """Parse a filter. Raises BadFilter, which says what is wrong. ``masked`` matches the names of
    arguments that it refuses, because an answer would reveal their values."""
    if len(text) > LONGEST or storable(text) != text:
        raise BadFilter(f"a filter has at most {LONGEST} characters and no NUL")
    found: dict[str, Any] = {}
    terms: list[Condition] = []
    not_states: list[str] = []
    for key, value, stars in _words(text):
        name, negated = key.removeprefix("-"), key.startswith("-")
        if name.startswith("args."):
            _check_argument(name, masked)
            terms.append(Condition(name, _like(value, stars), not negated))
        elif name == "state" and negated:
            not_states.append(_plain(name, value)["state"])
        elif name == "error" and not negated and _FINGERPRINT.fullmatch(value):
            _once(found, key, {"fingerprint": value})
        elif name in PATTERNS and (stars or negated or name not in SIMPLE):
            terms.append(_term(name, value, stars, negated))
        else:
            _once(found, key, _plain(key, value))
    if len(terms) > MOST_TERMS:
        raise BadFilter(f"at most {MOST_TERMS} of args., error:, schedule:, - and * in one filter")
    if "state" in found and not_states:
        raise BadFilter("state: and -state: exclude each other", do="Leave one of them out")
    return JobFilter(**found, terms=tuple(terms), not_states=tuple(not_states))


def _once(found: dict[str, Any], key: str, parts: dict[str, object]) -> None:
    for name in parts:
        if name in found:
            raise BadFilter(f"{key}: is given twice")
    found.update(parts)


def _term(name: str, value: str, stars: bool, negated: bool) -> Condition:
    if len(value) > Limits.text_chars:
        raise BadFilter(f"{name}: has at most {Limits.text_chars} characters")
    if name == "error" and _FINGERPRINT.fullmatch(value):
        return Condition("fingerprint", value, not negated)
    pattern = _like(value, stars)
    return Condition(name, f"%{pattern}%" if name == "error" else pattern, not negated)


def _like(value: str, stars: bool = False) -> str:
    """Return a pattern for LIKE."""
    pattern = re.sub(r"([\\%_])", r"\\\1", value)
    return pattern.replace("*", "%") if stars else pattern


def _at(moment: datetime | int | None, now: datetime | None) -> datetime | None:
    return now and now - timedelta(seconds=moment) if isinstance(moment, int) else moment


def quoted(text: str) -> str:
    """Write a value so that a filter finds it as it is."""
    if text and not any(c.isspace() or c in '"*' for c in text):
        return text
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def seconds_ago(text: str) -> int:
    """Read how long ago something was: ``2h``. Raises BadFilter."""
    if ago := _AGO.fullmatch(text):
        return min(int(ago[1]) * _UNITS[ago[2]], _LONGEST_AGO)
    raise BadFilter("this is no length of time", got=text, do="Like 2h, with s, min, h or d")


def _words(text: str) -> list[tuple[str, str, bool]]:
    """Return (key, value, whether the value has stars that match anything)."""
    words, place = [], 0
    text = text.strip()
    while place < len(text):
        match = _WORD.match(text, place)
        if match is None or match.end() == place or text[match.end() : match.end() + 1] == '"':
            raise BadFilter("a quote is not closed", got=text[place : place + 40])
        key, value = match[1] or "", match[2]
        stars = "*" in value and not value.startswith('"')
        if value.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        if not key:
            key, value = _bare(value)
        if not value:
            example = _EXAMPLES.get(key.removeprefix("-"), "42")
            raise BadFilter(f"{key}: needs a value", do=f"Like {key}:{example}")
        words.append((key, value, stars))
        place = match.end()
    return words


def _bare(word: str) -> tuple[str, str]:
    """Read a word without a key, which must be an id."""
    try:
        return "id", str(UUID(word))
    except ValueError:
        near = "state" if word in STATES else "task"
        raise BadFilter(
            f"{word!r} has no key", do=f"Did you mean {near}:{word}? Keys: {', '.join(KEYS)}"
        ) from None


def _plain(key: str, value: str) -> dict[str, Any]:
    if key == "id":
        return _range(value)
    if key == "batch":
        return {"batch": _uuid(value)}
    if key == "state":
        if value not in STATES:
            raise BadFilter(f"unknown state {value!r}", do=suggest(value, STATES))
        return {"state": value}
    if key in ("since", "until"):
        return {key: _moment(key, value)}
    if key in (*SIMPLE, "node"):
        if len(value) > Limits.text_chars:
            raise BadFilter(f"{key}: has at most {Limits.text_chars} characters")
        return {key: value}
    raise BadFilter(f"unknown key {key!r}", do=suggest(key, KEYS))


def _uuid(value: str) -> UUID:
    try:
        return UUID(value)
    except ValueError:
        raise BadFilter("batch: takes the whole id of a batch", got=value) from None


def _moment(key: str, value: str) -> datetime | int:
    """Read a time in ISO 8601, in UTC unless it says otherwise, or how long ago."""
    if _AGO.fullmatch(value):
        return seconds_ago(value)
    try:
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if storable_moment(moment):
            return moment
    except (ValueError, OverflowError):
        pass
    do = f"Like {key}:2h (with s, min, h or d) or {key}:2026-01-31T07:00"
    raise BadFilter(f"{key}: takes a time, or how long ago", got=value, do=do)


def ids_that_begin(beginning: str) -> tuple[UUID, UUID] | None:
    """Return the lowest and the highest id with this beginning; None if it is too short or is not
    the beginning of an id."""
    digits = beginning.replace("-", "")
    if not LEAST_DIGITS <= len(digits) <= 32 or not set(digits) <= set(hexdigits):
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def _range(value: str) -> dict[str, object]:
    low, dots, high = value.partition("..")
    anything = (_LOWEST, _HIGHEST)
    first = ids_that_begin(low) if low or not dots else anything
    last = (ids_that_begin(high) if high else anything) if dots else first
    if first is None or last is None:
        raise BadFilter(
            f"id: takes a UUID, at least {LEAST_DIGITS} digits of its beginning, or a range",
            got=value,
            do="Like id:A, id:A..B, id:A.. or id:..B",
        )
    return {"first": first[0], "last": last[1]}


def _check_argument(key: str, masked: re.Pattern[str] | None) -> None:
    path = key.removeprefix("args.").split(".")
    if not all(path):
        raise BadFilter("args. needs the name of an argument", do="Like args.user_id:42")
    if masked and any(masked.search(name) for name in path):
        do = "Filter by something else, such as task: or id:"
        raise BadFilter(f"{key} is masked and cannot be in a filter", do=do)
