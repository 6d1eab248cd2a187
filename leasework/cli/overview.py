"""The output of ``leasework status`` and ``leasework doctor``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import click
from msgspec import Struct, field

from leasework.app.diagnosis import Diagnosis
from leasework.cli.output import counted, heading, show_pairs, text
from leasework.model.moments import duration
from leasework.watch.checks import COUNT_CAP, problems
from leasework.watch.facts import Facts
from leasework.watch.finding import Finding

_SYMPTOMS = 5
"""The most symptoms that are shown of one problem."""


class Overview(Struct, frozen=True):
    """The figures, the problems and the notes."""

    figures: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    """The same figures for people."""
    found: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(problem.info for problem in self.found)

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "problems": [p.as_json() for p in self.found if not p.info],
            "notes": [p.as_json() for p in self.found if p.info],
            **self.figures,
        }


def of_facts(everything: Facts, schema: str, only: Collection[str] = ()) -> Overview:
    """``only``: limits this to some applications, except for the jobs."""
    facts = everything.of_apps(only)
    summary = facts.summary
    apps = Counter(node.app for node in facts.live_nodes)
    figures: dict[str, Any] = {
        "database_time": facts.now,
        "schema": schema,
        "nodes": {"live": len(facts.live_nodes), "all": len(facts.nodes), "by_app": dict(apps)},
        "leaders": [leader._asdict() for leader in facts.leaders],
        "jobs": {
            "available": sum(row.available for row in facts.queues),
            "running": sum(row.running for row in facts.queues),
            "more": any(row.capped for row in facts.queues),
            "limited": sum(row.waiting for row in facts.limited),
            "waiting": summary.waiting,
            "unknown_task": summary.unknown,
            "quarantined": summary.quarantined,
            "oldest_available_seconds": facts.oldest_seconds,
        },
        "schedules": {
            "all": len(facts.schedules),
            "paused": sum(bool(row.paused) for row in facts.schedules),
        },
    }
    return Overview(figures, _lines(facts, apps, figures["jobs"]), problems(everything, only))


def of_diagnosis(told: Diagnosis, schema: str) -> Overview:
    overview = of_facts(told.facts, schema) if told.facts else Overview()
    figures, lines = dict(overview.figures), dict(overview.lines)
    if told.setup:
        server = told.setup.server
        figures["setup"] = told.setup
        major, minor = divmod(server["version"], 10000)
        where = f"database {server['database']!r} as {server['login']!r}"
        lines["server"] = f"PostgreSQL {major}.{minor}, {where}"
    return Overview(figures, lines, told.found)


def _lines(facts: Facts, apps: Counter[str], jobs: dict[str, Any]) -> dict[str, str]:
    named = ", ".join(
        f"{count} of {app}" if app else f"{count} for locks only"
        for app, count in sorted(apps.items())
    )
    lines = {"nodes": f"{len(facts.live_nodes)} live" + (f" ({named})" if named else "")}
    for leader in facts.leaders:
        renewed = duration(max(0.0, leader.age_seconds or 0.0))
        leads = f"{leader.holder}, term {leader.term}, renewed {renewed} ago"
        lines[f"leader of {leader.name}"] = "none" if leader.node is None else leads
    more = "+" if jobs["more"] else ""
    ready = f"{jobs['available']:,}{more} available, {jobs['running']:,} running"
    if jobs["limited"]:
        ready += f", {_count(jobs['limited'])} waiting for limits"
    lines["jobs"] = f"{ready}, {_count(jobs['waiting'])} scheduled or to be retried"
    if facts.durable and (suspended := sum(facts.durable.suspended.values())):
        lines["jobs"] += f" ({_count(suspended)} of them suspended)"
    lines["schedules"] = str(len(facts.schedules))
    return lines


def _count(number: int) -> str:
    """A number, with ``+`` if counting stopped there."""
    return f"{number:,}" + ("+" if number >= COUNT_CAP else "")


def show(overview: Overview) -> None:
    """Print the figures, then the problems, then the notes."""
    show_pairs(overview.lines)
    wrong = [problem for problem in overview.found if not problem.info]
    notes = [problem for problem in overview.found if problem.info]
    if overview.lines:
        click.echo()
    heading(counted(len(wrong), "problem") if wrong else "All is well", good=not wrong)
    _show_all(wrong)
    if notes:
        heading(counted(len(notes), "note"), good=True)
        _show_all(notes)


def _show_all(found: Sequence[Finding]) -> None:
    for finding in found:
        words = [_stop(finding.sentence), _stop(finding.do)]
        if finding.since:
            words.append(f"Since {finding.since:%Y-%m-%d %H:%M:%S} UTC.")
        if finding.silence:
            words.append(_stop(finding.silence))
        words.append(f"({' '.join(filter(None, (finding.kind, finding.subject)))})")
        click.echo(text(f"- {' '.join(filter(None, words))}"))
        for symptom in finding.symptoms[:_SYMPTOMS]:
            click.echo(text(f"  - {_stop(symptom.sentence)}"))
        if (more := len(finding.symptoms) - _SYMPTOMS) > 0:
            click.echo(f"  - and {more:,} more.")


def _stop(words: str) -> str:
    return words if not words or words.endswith((".", "?", "!")) else words + "."
