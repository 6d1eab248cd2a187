"""Checks that APScheduler's jobs have the same ids and moments in every process."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, BaseCombiningTrigger, OrTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from leasework.errors import ConfigError


def check_adoptable(job: Any, today: date) -> None:
    """``today``: this machine's date. Raises ConfigError for what differs between processes."""
    if len(job.id) == 32 and all(letter in "0123456789abcdef" for letter in job.id):
        raise ConfigError(
            "the job has no id of its own: each process would generate a different one",
            got=f"{job.name} ({job.id})",
            do="scheduler.add_job(..., id='nightly-report')",
        )
    _check_trigger(job.trigger, job.id, today)


def _check_trigger(trigger: Any, job: str, today: date, *, inside: bool = False) -> None:
    if getattr(trigger, "jitter", None):
        raise ConfigError(
            "jitter gives each process a different run time, and each run time a job",
            got=job,
            do="Leave out jitter: the run happens once anyway",
        )
    if inside and isinstance(trigger, IntervalTrigger) and trigger.start_date.microsecond:
        raise ConfigError(
            "an interval inside a combined trigger counts from the start of the process",
            got=job,
            do="Give it a start_date that is the same in every process",
        )
    if isinstance(trigger, DateTrigger) and trigger.run_date.microsecond:
        raise ConfigError(
            "a date with a fraction of a second is the moment when the process created it, so each "
            "process would have a different one",
            got=job,
            do="Give it a run_date in whole seconds that is the same in every process",
        )
    if isinstance(trigger, CalendarIntervalTrigger) and _counts_from(today, trigger):
        raise ConfigError(
            "a calendar interval without a start_date counts from the day on which the process "
            "started",
            got=job,
            do="Give it a start_date before today that is the same in every process",
        )
    if isinstance(trigger, BaseCombiningTrigger):
        for part in trigger.triggers:
            _check_trigger(part, job, today, inside=True)


def _counts_from(today: date, trigger: Any) -> bool:
    """Does the interval count from today, APScheduler's default without a start_date? A one-day
    interval has the same moments whatever day it counts from."""
    interval = (trigger.years, trigger.months, trigger.weeks, trigger.days)
    return interval != (0, 0, 0, 1) and trigger.start_date == today


def first_from(trigger: Any, due: datetime, moment: datetime) -> datetime | None:
    """Return the trigger's first moment that is not before ``moment``. ``due`` is one of its
    moments. None: there is none."""
    at = moment.astimezone(due.tzinfo)
    if isinstance(trigger, OrTrigger):
        parts = (first_from(part, due, moment) for part in trigger.triggers)
        return min((first for first in parts if first), default=None)
    following: datetime | None = due
    if not isinstance(trigger, AndTrigger):  # which, without a moment before, may search for ever
        following = trigger.get_next_fire_time(None, at)
        if following is not None and following < at:  # some count from their start
            following = due
    while following is not None and following < at:
        following = trigger.get_next_fire_time(following, at)
    return following


def is_moment(trigger: Any, moment: datetime) -> bool:
    """Whether it is known to be one of the trigger's moments, as after ``reschedule_job``."""
    if isinstance(trigger, BaseCombiningTrigger):  # an AndTrigger may search for ever
        return False
    return bool(trigger.get_next_fire_time(None, moment - timedelta(microseconds=1)) == moment)


def of_the_epoch(trigger: Any) -> IntervalTrigger:
    """The same interval counted from 1970, which every process agrees on."""
    return IntervalTrigger(
        seconds=trigger.interval_length,
        start_date=datetime(1970, 1, 1, tzinfo=UTC),
        end_date=trigger.end_date,
        timezone=trigger.timezone,
    )
