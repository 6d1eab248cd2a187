"""The filter language for jobs: ``state:running queue:mail args.user_id:42 id:A..B``. Text becomes
a value, and then parameters of fixed statements. It never becomes SQL."""

from __future__ import annotations

import re
from string import hexdigits
from typing import get_args
from uuid import UUID

from msgspec import Struct

from leasework.config import Limits
from leasework.errors import BadFilter, BadJob, storable, suggest
from leasework.model.states import StateName

LONGEST = 1000
"""The most characters of a filter."""
MOST_ARGUMENTS = 8
LEAST_DIGITS = 8
"""The fewest digits of the beginning of an id."""
SIMPLE = {"state": "state", "queue": "queue", "task": "task_name", "tag": "tags"}
"""The filters that ``app.jobs`` and ``leasework jobs`` also have, and their fields of JobRecord."""
KEYS = (*SIMPLE, "node", "id", "args.")
STATES: tuple[str, ...] = get_args(StateName)
_WORD = re.compile(r"""\s*(?:([A-Za-z_][^\s:"]*):)?("(?:[^"\\]|\\.)*"|[^\s"]\S*|)""")
_EXAMPLES = {"state": "running", "queue": "default", "id": "…", "node": "host:4711"}
_LOWEST, _HIGHEST = UUID(int=0), UUID(int=(1 << 128) - 1)


class JobFilter(Struct, frozen=True):
    """The conditions that a job must meet. None and empty match any job."""

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    node: str | None = None
    """A worker's id (host:pid:short-id) or its beginning, or a node's UUID."""
    arguments: tuple[tuple[tuple[str, ...], str], ...] = ()
    """(path, the value as text)"""
    first: UUID = _LOWEST
    last: UUID = _HIGHEST
    tag: str | None = None
    unfinished: bool = False
    """Leave out the jobs that have ended."""

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

    def params(self) -> dict[str, object]:
        """The parameters of statements with ``{{job/_matches}}``, except the node."""
        return {
            **{name: getattr(self, name) for name in SIMPLE},
            "paths": [".".join(path) for path, _ in self.arguments],
            "values": [value for _, value in self.arguments],
            "first": self.first,
            "last": self.last,
        }


def parse(text: str, masked: re.Pattern[str] | None = None) -> JobFilter:
    """Parse a filter. Raises BadFilter, which says what is wrong. ``masked`` matches the names of
    arguments that it refuses, because an answer would reveal their values."""
    if len(text) > LONGEST or storable(text) != text:
        raise BadFilter(f"a filter has at most {LONGEST} characters and no NUL")
    found: dict[str, object] = {}
    arguments: list[tuple[tuple[str, ...], str]] = []
    for key, value in _words(text):
        if key.startswith("args."):
            arguments.append(_argument(key, value, masked))
            continue
        parts = _plain(key, value)
        for name in parts:
            if name in found:
                raise BadFilter(f"{key}: is given twice")
        found.update(parts)
    if len(arguments) > MOST_ARGUMENTS:
        raise BadFilter(f"at most {MOST_ARGUMENTS} args. in one filter")
    return JobFilter(**found, arguments=tuple(arguments))  # type: ignore[arg-type]


def _words(text: str) -> list[tuple[str, str]]:
    words, place = [], 0
    text = text.strip()
    while place < len(text):
        match = _WORD.match(text, place)
        if match is None or match.end() == place or text[match.end() : match.end() + 1] == '"':
            raise BadFilter("a quote is not closed", got=text[place : place + 40])
        key, value = match[1] or "", match[2]
        if value.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        if not key:
            key, value = _bare(value)
        if not value:
            raise BadFilter(f"{key}: needs a value", do=f"Like {key}:{_EXAMPLES.get(key, '42')}")
        words.append((key, value))
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


def _plain(key: str, value: str) -> dict[str, object]:
    if key == "id":
        return _range(value)
    if key == "state":
        if value not in STATES:
            raise BadFilter(f"unknown state {value!r}", do=suggest(value, STATES))
        return {"state": value}
    if key in (*SIMPLE, "node"):
        if len(value) > Limits.text_chars:
            raise BadFilter(f"{key}: has at most {Limits.text_chars} characters")
        return {key: value}
    raise BadFilter(f"unknown key {key!r}", do=suggest(key, KEYS))


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


def _argument(key: str, value: str, masked: re.Pattern[str] | None) -> tuple[tuple[str, ...], str]:
    path = tuple(key.removeprefix("args.").split("."))
    if not all(path):
        raise BadFilter("args. needs the name of an argument", do="Like args.user_id:42")
    if masked and any(masked.search(name) for name in path):
        do = "Filter by something else, such as task: or id:"
        raise BadFilter(f"{key} is masked and cannot be in a filter", do=do)
    return path, value
