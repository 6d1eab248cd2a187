"""How a check is declared, and the phrases that checks share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

from msgspec import Struct, field, structs

from leasework import errors
from leasework.config import TROUBLE_SECONDS
from leasework.errors import shorten
from leasework.model.moments import duration
from leasework.store.rows import BlockerView, EventView, FailingSchedule, ScheduleLag
from leasework.store.setup import Setup
from leasework.watch.facts import Facts
from leasework.watch.finding import NOTE, SILENCED, WRONG, Finding

COUNT_CAP = 10_000
"""The summary's counts stop at this number."""
_ALIKE = 3
"""More problems of one kind than this are shown as one."""
_LEVELS = (WRONG, NOTE, SILENCED)


class Said(Struct, frozen=True):
    """A sentence with values for its check's hint, or with a level and a hint of its own."""

    sentence: str
    fill: dict[str, object] = field(default_factory=dict)
    """What the hint names, besides the subject: ``{queue}`` is that of ``queue:mail``."""
    level: str = ""
    do: str | None = None
    subject: str = ""
    """Its type and its name, such as ``queue:mail``."""
    seconds: float | None = None
    """How long ago it began."""


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
    explains: tuple[str, ...] = ()
    """The kinds of problems that follow from this one."""
    alert: str = "warning"
    """Its severity: critical, warning or info."""
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

    def finding(self, said: str | Said, now: datetime | None = None) -> Finding:
        said = Said(said) if isinstance(said, str) else said
        about, _, name = said.subject.partition(":")
        hint = self.hint.format(**{about: name, **said.fill}) if said.do is None else said.do
        level = said.level or self.level
        since = now - timedelta(seconds=said.seconds) if now and said.seconds is not None else None
        return Finding(
            self.kind, level, said.sentence, hint, self.docs,
            severity=self.alert if level == WRONG else "info", subject=said.subject, since=since,
        )  # fmt: skip


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
    """What is wrong, the gravest first, then what is only worth knowing; symptoms are in their
    cause. ``apps`` limits this to these applications, except for the checks that all share."""
    mine = facts.of_apps(apps)
    found = [
        one.finding(said, facts.now)
        for one in CHECKS.values()
        if one.find and not one.setup
        for said in one.find(facts if one.shared else mine)
    ]
    return ranked(_gathered([_silenced(finding, facts) for finding in folded(found)]))


def ranked(found: list[Finding]) -> list[Finding]:
    return sorted(found, key=lambda one: (_LEVELS.index(one.level), one.severity != "critical"))


def folded(found: Sequence[Finding]) -> list[Finding]:
    """The causes, each with its symptoms."""
    above: dict[str, list[int]] = {}
    for number, one in enumerate(found):
        for kind in CHECKS[one.kind].explains if one.level == WRONG else ():
            above.setdefault(kind, []).append(number)
    causes: dict[int, list[Finding]] = {}
    for number, finding in enumerate(found):
        root, seen = number, {number}
        while (cause := _cause_of(found, above, root)) is not None and cause not in seen:
            root = cause
            seen.add(root)
        causes.setdefault(root, []).extend([finding] if root != number else [])
    return [
        structs.replace(one, symptoms=tuple(symptoms), severity=_gravest([one, *symptoms]))
        for one, symptoms in ((found[number], causes[number]) for number in sorted(causes))
    ]


def _cause_of(found: Sequence[Finding], above: dict[str, list[int]], number: int) -> int | None:
    """The place of the first finding that explains this one. ``above``: those that may."""
    type_, _, name = found[number].subject.partition(":")
    for place in above.get(found[number].kind, ()):
        its_type, _, its_name = found[place].subject.partition(":")
        if type_ != its_type or name == its_name:
            return place
    return None


def _gravest(found: Sequence[Finding]) -> str:
    return "critical" if any(one.severity == "critical" for one in found) else found[0].severity


def _gathered(found: Sequence[Finding]) -> list[Finding]:
    """Many of one kind as one."""
    whole: list[Finding] = []
    for kind, level in dict.fromkeys((one.kind, one.level) for one in found):
        alike = [one for one in found if (one.kind, one.level) == (kind, level)]
        whole += alike if len(alike) <= _ALIKE else [_together(alike)]
    return whole


def _together(alike: list[Finding]) -> Finding:
    first, *others = alike
    begins = [one.since for one in alike if one.since]
    return structs.replace(
        first,
        severity=_gravest(alike),
        sentence=f"{first.sentence.rstrip('.')}. There are {len(others):,} more problems like it",
        subject="",
        since=min(begins, default=None),
        symptoms=(*first.symptoms, *(s for one in others for s in (one, *one.symptoms))),
    )


def _silenced(finding: Finding, facts: Facts) -> Finding:
    for row in facts.silences:
        if row.kind == finding.kind and row.subject in ("", finding.subject) and not finding.info:
            silence = f"Silenced by {row.who} until {row.until:%Y-%m-%d %H:%M %Z}: {row.reason}"
            return structs.replace(finding, level=SILENCED, silence=silence)
    return finding


def setup_problems(setup: Setup) -> list[Finding]:
    """What is wrong with the set-up or worth knowing, in the order of the checks."""
    return [
        one.finding(said)
        for one in CHECKS.values()
        if one.find and one.setup
        for said in one.find(setup)
    ]


def database_problems(
    error: errors.LeaseworkError, blockers: Sequence[BlockerView] = ()
) -> list[Finding]:
    """What to report when the facts could not be read."""
    one = CHECKS["lock_wait"]
    found = one.find(SimpleNamespace(blockers=blockers)) if one.find else ()
    locked = [one.finding(said) for said in found]
    return ranked(folded([*locked, database_problem(error)]))


def database_problem(error: errors.LeaseworkError) -> Finding:
    """The problem that this error is."""
    one = next((c for c in CHECKS.values() if c.error and isinstance(error, c.error)), None)
    what = error.what if error.got is ... else f"{error.what}: {shorten(error.got)}"
    sentence = " ".join(what.split())
    chosen = one or CHECKS["error"]
    told = Said(sentence[:1].upper() + sentence[1:])
    return structs.replace(chosen.finding(told), do=error.do or chosen.hint)


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


def seconds_of(value: object) -> str:
    return duration(value) if isinstance(value, (int, float)) else "?"


def listed(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def count(number: int) -> str:
    if number == 1:
        return "1 job is"
    return f"{number:,}{' or more' if number >= COUNT_CAP else ''} jobs are"
