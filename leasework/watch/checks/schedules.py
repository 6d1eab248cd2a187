"""Checks of schedules and deadlines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from leasework.config import RESTART_SECONDS, SILENT_SCHEDULE_SECONDS
from leasework.errors import error_line, shorten
from leasework.model.moments import duration
from leasework.store.rows import EventView, UnhandledBreach
from leasework.watch.checks.registry import Said, check, lately, schedule_named, since
from leasework.watch.facts import Facts
from leasework.watch.finding import NOTE, WRONG


@check(
    f"A schedule was due {SILENT_SCHEDULE_SECONDS:g} seconds ago, and that moment is undecided.",
    "Check that this application has a live node that leads: leasework leaders. If the application "
    "is gone: leasework schedules remove NAME",
    page="schedules", alert="critical",
)  # fmt: skip
def _schedule_silent(facts: Facts) -> Iterator[str | Said]:
    for schedule in facts.schedules:
        if schedule.late_seconds > SILENT_SCHEDULE_SECONDS:
            late = duration(schedule.late_seconds)
            yield Said(
                f"Schedule {schedule_named(schedule)} is silent: it was due {late} ago",
                subject=f"schedule:{schedule.name}",
                seconds=schedule.late_seconds,
            )


@check(
    "The last tick of a schedule is ahead of the database's clock.",
    "The database's clock was set back. The schedule continues when the clock has caught up",
    page="schedules",
)  # fmt: skip
def _schedule_ahead(facts: Facts) -> Iterator[str | Said]:
    for schedule in facts.schedules:
        if schedule.ahead_seconds > SILENT_SCHEDULE_SECONDS and not schedule.paused:
            name, ahead = schedule_named(schedule), duration(schedule.ahead_seconds)
            said = f"Schedule {name} is silent: its last tick is {ahead} ahead of the clock"
            yield Said(said, subject=f"schedule:{schedule.name}")


@check(
    "The newest job of a schedule was discarded or quarantined, and none of the jobs of its last "
    "five ticks completed within ten minutes.",
    "leasework jobs show {job}; once the cause is fixed: leasework jobs retry {job}",
    page="schedules",
)  # fmt: skip
def _schedule_failing(facts: Facts) -> Iterator[str | Said]:
    for row in facts.failing:
        error = error_line(row.error)
        yield Said(
            f"Schedule {schedule_named(row)} fails: its last job was {row.state} "
            f"{duration(facts.ago(row.finished_at))} ago" + (f": {error}" if error else ""),
            {"job": row.job_id},
            subject=f"schedule:{row.name}",
        )


@check(
    "A schedule missed moments within the last ten minutes: they were later than its grace, and "
    f"its `missed` option does not run them. It is only a note if the schedule was paused then, or "
    f"if the leading process started within {RESTART_SECONDS:g} seconds, as in a deployment.",
    "If it should have run, run it now: leasework schedules run {name}. "
    'leasework schedules ticks {name} shows what was missed. With missed="all" in its definition, '
    "missed moments run as well",
    page="schedules",
)  # fmt: skip
def _tick_missed(facts: Facts) -> Iterator[str | Said]:
    for name, events in lately(facts, "tick_missed", "schedule"):
        # a deployment must not hide moments that were missed while there was a leader
        serious = [event for event in events if not _cause(event)[1]]
        newest = (serious or events)[-1]
        first, last = newest.fields.get("first"), newest.fields.get("last")
        when = f"of {first}" if first == last else f"from {first} to {last}"
        yield Said(
            f"Schedule {shorten(name)!r} missed its moments {when}{_cause(newest)[0]} "
            f"({since(facts, newest)} ago)",
            {"name": shorten(name)},
            level=WRONG if serious else NOTE,
            subject=f"schedule:{shorten(name)}",
            seconds=facts.ago((serious or events)[0].at),
        )


@check(
    "Processes of one release define different schedules. Each removes those of the others within "
    "a minute, and restores its own, whose moments are then late.",
    "Let every process of a release import all modules that define schedules",
    page="schedules",
)  # fmt: skip
def _schedules_disputed(facts: Facts) -> Iterator[str | Said]:
    for release, events in lately(facts, "schedules_synced", "release"):

        def names(field: str, of: list[EventView] = events) -> list[tuple[str, str]]:
            return [(str(e.fields.get("app")), n) for e in of for n in e.fields.get(field) or ()]

        kept = set(names("kept"))
        for (app, name), times in sorted(Counter(names("dropped")).items()):
            if times > 1 and (app, name) in kept:
                yield Said(
                    f"Schedule {shorten(name)!r} of {app!r} was removed {times} times within ten "
                    f"minutes: not all processes of the release {shorten(release)!r} define it",
                    subject=f"schedule:{shorten(name)}",
                )


def _cause(event: EventView) -> tuple[str, bool]:
    """Why these moments were missed, if known, and whether it was right to miss them."""
    if event.fields.get("paused"):
        return ", while it was paused", True
    stopped = event.fields.get("stopped")
    if not isinstance(stopped, (int, float)):
        return "", False
    return ", before the leading process had started", stopped <= RESTART_SECONDS


@check(
    "A person paused a schedule.",
    "To resume it: leasework schedules resume {name}",
    level=NOTE, page="schedules",
)  # fmt: skip
def _schedule_paused(facts: Facts) -> Iterator[str | Said]:
    for schedule in facts.schedules:
        if schedule.paused:
            yield Said(
                f"Schedule {schedule_named(schedule)} is paused",
                {"name": schedule.name},
                subject=f"schedule:{schedule.name}",
            )


@check(
    "A deadline passed within the last ten minutes.",
    "Its callback {callback!r} was enqueued. See leasework deadlines --state breached",
    page="deadlines?state=breached", shared=True,
)  # fmt: skip
def _deadline_breached(facts: Facts) -> Iterator[str | Said]:
    for name, events in lately(facts, "deadline_breached", "name"):
        fields = events[-1].fields
        more = f", and {len(events) - 1} before it" if len(events) > 1 else ""
        yield Said(
            f"The deadline {shorten(name)!r} was missed: due {fields.get('due')}{more} "
            f"({since(facts, events[-1])} ago)",
            {"callback": fields.get("callback")},
            subject=f"deadline:{shorten(name)}",
            seconds=facts.ago(events[0].at),
        )


@check(
    "A deadline was missed within the last seven days, and its callback waits for a task that no "
    "live node knows, or was discarded or quarantined.",
    "Start a worker of a release that defines it, on the queue of that task",
    page="deadlines?state=breached", shared=True, alert="critical",
)  # fmt: skip
def _breach_unhandled(facts: Facts) -> Iterator[str | Said]:
    by_task: dict[tuple[str, str], list[UnhandledBreach]] = {}
    for row in facts.unhandled:
        by_task.setdefault((row.task, row.why), []).append(row)
    for (task, why), rows in sorted(by_task.items()):
        named = f"{rows[0].name!r}" + (f" and {len(rows) - 1} more" if len(rows) > 1 else "")
        if why == "unknown":
            yield Said(
                f"No callback ran for a missed deadline ({named}): "
                f"no live node knows the task {task!r}",
                subject=f"task:{task}",
            )
        else:
            job = rows[0].callback_job
            yield Said(
                f"No callback succeeded for a missed deadline ({named}): its callback {task!r} "
                f"was {why}",
                do=f"leasework jobs show {job}; to try again: leasework jobs retry {job}",
                subject=f"task:{task}",
            )
