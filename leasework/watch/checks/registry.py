"""How a check is declared, and the phrases that checks share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from msgspec import Struct, field

from leasework import errors
from leasework.config import TROUBLE_SECONDS
from leasework.errors import shorten
from leasework.model.moments import duration
from leasework.store.rows import EventView, FailingSchedule, LeaderView, NodeView, ScheduleLag
from leasework.store.setup import Setup
from leasework.watch.facts import Facts
from leasework.watch.finding import WRONG, Finding

COUNT_CAP = 10_000
"""The summary's counts stop at this number."""


class Said(Struct, frozen=True):
    """A sentence with values for its check's hint, or with a level and a hint of its own."""

    sentence: str
    fill: dict[str, object] = field(default_factory=dict)
    level: str = ""
    do: str | None = None


Find = Callable[[Any], Iterator["str | Said"]]
"""Gets the :class:`Facts`, or the :class:`Setup` if the check is of the set-up."""


class Check(Struct, frozen=True):
    kind: str
    meaning: str
    """One sentence: when the check reports a problem."""
    hint: str
    """What helps; its ``{placeholders}`` are filled with what was found."""
    find: Find | None = None
    level: str = WRONG
    """WRONG, or NOTE: worth knowing, but nothing is wrong."""
    shared: bool = False
    """Checked over all applications, even when a person asks about one."""
    page: str = ""
    """Where the dashboard shows more."""
    alert: str = "warning"
    """The alert's severity: critical, warning or info."""
    alert_after: str = "0s"
    """How long the problem lasts before the alert fires."""
    error: type[errors.LeaseworkError] | None = None
    """The class of error that this check stands for."""
    setup: bool = False
    """It judges the set-up, which only the doctor reads: it has no metric and no alert."""

    @property
    def docs(self) -> str:
        """The page of the documentation, relative to its root."""
        return f"reference/checks.md#{self.kind}"

    @property
    def advice(self) -> str:
        """The hint for documentation and alerts, with the names of its placeholders in capitals."""
        return re.sub(r"\{(\w+)[^}]*\}", lambda gap: gap[1].upper(), self.hint)

    def finding(self, said: str | Said) -> Finding:
        said = Said(said) if isinstance(said, str) else said
        hint = said.do
        if hint is None:
            hint = self.hint.format(**said.fill) if said.fill else self.hint
        return Finding(self.kind, said.level or self.level, said.sentence, hint, self.docs)


CHECKS: dict[str, Check] = {}
"""All checks by kind, in the order in which people read their problems."""


def check(meaning: str, hint: str, **options: Any) -> Callable[[Find], Find]:
    """Declare the decorated function as a check. Its name, after the underscore, is the kind."""

    def declare(find: Find) -> Find:
        kind = find.__name__.removeprefix("_")
        CHECKS[kind] = Check(kind, meaning, hint, find, **options)
        return find

    return declare


setup_check = partial(check, setup=True)


def problems(facts: Facts, apps: Collection[str] = ()) -> list[Finding]:
    """What is wrong, then what is only worth knowing. ``apps`` limits this to these applications,
    except for the checks that all of them share."""
    mine = facts.of_apps(apps)
    found = [
        one.finding(said)
        for one in CHECKS.values()
        if one.find and not one.setup
        for said in one.find(facts if one.shared else mine)
    ]
    return sorted(found, key=lambda finding: finding.info)


def setup_problems(setup: Setup) -> list[Finding]:
    """What is wrong with the set-up or worth knowing, in the order of the checks."""
    return [
        one.finding(said)
        for one in CHECKS.values()
        if one.find and one.setup
        for said in one.find(setup)
    ]


def database_problem(error: errors.LeaseworkError) -> Finding:
    """The only problem to report when the database could not be read."""
    one = next((c for c in CHECKS.values() if c.error and isinstance(error, c.error)), None)
    what = error.what if error.got is ... else f"{error.what}: {shorten(error.got)}"
    sentence = " ".join(what.split())
    chosen = one or CHECKS["error"]
    told = Said(sentence[:1].upper() + sentence[1:])
    return replace(chosen.finding(told), do=error.do or chosen.hint)


def lately(facts: Facts, kind: str, subject: str) -> Iterator[tuple[str, list[EventView]]]:
    """Recent events of a kind, grouped by the field ``subject``, the newest last."""
    since = facts.now - timedelta(seconds=TROUBLE_SECONDS)
    found: dict[str, list[EventView]] = {}
    for event in sorted(facts.events, key=lambda event: event.id):
        if event.kind == kind and event.at > since:
            name = (event.fields or {}).get(subject)
            found.setdefault(str(name or ""), []).append(event._replace(fields=event.fields or {}))
    yield from sorted(found.items())


def since(facts: Facts, event: EventView) -> str:
    return duration(facts.ago(event.at))


def schedule_named(row: ScheduleLag | FailingSchedule) -> str:
    return f"{row.name!r} of {row.app!r}"


def age(row: NodeView | LeaderView) -> str:
    return seconds_of(row.age_seconds)


def seconds_of(value: object) -> str:
    return duration(value) if isinstance(value, (int, float)) else "?"


def listed(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def jobs_of(number: int, verb: str) -> str:
    """``1 job was rescued``, ``3 jobs were rescued``."""
    return f"1 job was {verb}" if number == 1 else f"{number:,} jobs were {verb}"


def count(number: int) -> str:
    if number == 1:
        return "1 job is"
    return f"{number:,}{' or more' if number >= COUNT_CAP else ''} jobs are"
