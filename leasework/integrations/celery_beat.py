"""Turns the beat schedule of a Celery application into code for leasework.

Celery and leasework differ in one rule. If a crontab names both days of the month and days of the
week, Celery fires on days that are in both, and cron (so leasework) on days that are in either.
Such a schedule is refused.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Any

from msgspec import Struct

from leasework.errors import BadSchedule, LeaseworkError
from leasework.model.schedule import cron, every

_KNOWN_OPTIONS = {"queue", "priority"}
_LOWEST_FIRST = ("redis", "sentinel", "valkey")
"""Brokers on which a lower number of a priority comes first, as in leasework."""


class Found(Struct, frozen=True):
    """What was read."""

    code: str
    """A Python module with the function ``add_schedules(app)``."""
    refused: dict[str, str]
    """Entries that leasework has no schedule for: name -> why."""


def read(celery: Any) -> Found:
    """Read the beat schedule of a Celery app. Its modules with tasks are imported. Connects to
    nothing."""
    celery.finalize()
    celery.loader.import_default_modules()
    modules: set[str] = set()
    lines: list[str] = []
    refused: dict[str, str] = {}
    for name, entry in celery.conf.beat_schedule.items():
        try:
            lines += _entry(celery, str(name), entry, modules)
        except LeaseworkError as error:
            refused[str(name)] = " ".join(str(error).split())
    return Found(_module(modules, lines, refused), refused)


def _entry(celery: Any, name: str, entry: Mapping[str, Any], modules: set[str]) -> list[str]:
    """The lines of one schedule."""
    times = _times(celery, entry["schedule"])
    more: dict[str, Any] = {"name": name}
    task = celery.tasks.get(entry["task"])
    if task is None:
        raise BadSchedule(
            f"the Celery app has no task {entry['task']!r}",
            do="Name its module in the Celery app's imports",
        )
    options = {key: getattr(task, key, None) for key in _KNOWN_OPTIONS}
    options = {k: v for k, v in options.items() if v is not None} | (entry.get("options") or {})
    if not str(celery.conf.broker_url).startswith(_LOWEST_FIRST) and options.get("priority"):
        options["priority"] = -options["priority"]
    arguments = _arguments(task, entry)
    if arguments:
        more["arguments"] = arguments
    more |= {key: options.pop(key) for key in sorted(_KNOWN_OPTIONS & options.keys())}
    function = f"{task.run.__module__}.{task.run.__qualname__}"
    modules.add(task.run.__module__)
    given = ", ".join([times, *[f"{key}={value!r}" for key, value in more.items()]])
    left = [f"    # Celery's option {key}={value!r} is left out" for key, value in options.items()]
    return [*left, f"    app.{given})({function})"]


def _times(celery: Any, given: Any) -> str:
    """The beginning of the call: ``every(seconds=30.0``. Raises BadSchedule."""
    from celery.schedules import crontab, maybe_schedule, schedule

    times = maybe_schedule(given, app=celery)
    if type(times) is crontab:
        expression, zone = _expression(times), _zone(celery)
        cron(expression, zone)
        return f"periodic({expression!r}, timezone={zone!r}"
    if type(times) is schedule:
        seconds = times.run_every.total_seconds()
        every(seconds=seconds)
        return f"every(seconds={seconds:.15g}"
    raise BadSchedule(
        f"leasework has no schedule like Celery's {type(times).__name__}",
        do="Use a cron expression, or a schedule that decides in its handler whether to act",
    )


def _expression(given: Any) -> str:
    """A cron expression. Raises BadSchedule for one that cron would understand differently."""
    days = _field(given._orig_day_of_month, given.day_of_month, range(1, 32))
    weekdays = _field(given._orig_day_of_week, given.day_of_week, range(7))
    if "*" not in (days, weekdays):
        raise BadSchedule(
            "Celery runs it on days that match both day_of_month and day_of_week, cron on days "
            "that match either",
            got=f"day_of_month={days}, day_of_week={weekdays}",
            do="Give one of them, and check the other one in the handler",
        )
    minutes = _field(given._orig_minute, given.minute, range(60))
    hours = _field(given._orig_hour, given.hour, range(24))
    months = _field(given._orig_month_of_year, given.month_of_year, range(1, 13))
    return f"{minutes} {hours} {days} {months} {weekdays}"


def _field(text: object, values: Collection[int], every_value: range) -> str:
    """One field. ``*/5`` stays as it was written; names and lists become numbers."""
    if len(values) == len(every_value):
        return "*"
    if isinstance(text, str) and text.startswith("*/") and "," not in text:
        return text
    return ",".join(_runs(sorted(values)))


def _runs(values: list[int]) -> Iterable[str]:
    for _, group in groupby(enumerate(values), key=lambda pair: pair[1] - pair[0]):
        run = [value for _, value in group]
        yield f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0])


def _zone(celery: Any) -> str:
    if celery.conf.timezone:
        return str(celery.conf.timezone)
    if celery.conf.enable_utc:
        return "UTC"
    raise BadSchedule(
        "the Celery app uses the local time of its machine",
        do="Set its timezone, for example timezone='Europe/Berlin'",
    )


def _arguments(task: Any, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name. Raises BadSchedule if they do not fit the task."""
    args, kwargs = tuple(entry.get("args") or ()), dict(entry.get("kwargs") or {})
    try:
        bound = inspect.signature(task.run).bind(*args, **kwargs)
    except TypeError as error:
        raise BadSchedule(
            f"task {task.name} cannot take its arguments: {error}", got=(args, kwargs)
        ) from None
    arguments = dict(bound.arguments)
    for parameter in bound.signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL and arguments.get(parameter.name):
            raise BadSchedule(
                f"task {task.name}: an argument is stored by its name, and these have none",
                got=arguments[parameter.name],
            )
        if parameter.kind is parameter.VAR_POSITIONAL:
            arguments.pop(parameter.name, None)
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= arguments.pop(parameter.name, {})
    with suppress(ValueError, SyntaxError):
        if ast.literal_eval(repr(arguments)) == arguments:
            return arguments
    raise BadSchedule(
        f"task {task.name} has arguments that cannot be written as Python literals",
        got=arguments,
        do="Write this schedule by hand",
    )


def _module(modules: set[str], lines: list[str], refused: dict[str, str]) -> str:
    left = [f"    # not converted: {name!r}: {why}" for name, why in refused.items()]
    return "\n".join(
        [
            *[f"import {module}" for module in sorted(modules)],
            "from leasework import App",
            "",
            "",
            "def add_schedules(app: App) -> None:",
            *(lines or ["    pass"]),
            *left,
            "",
        ]
    )
