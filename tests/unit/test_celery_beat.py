"""A Celery application's beat schedule as code for leasework."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab, schedule, solar
from click.testing import CliRunner

from leasework import App
from leasework.cli.root import root
from leasework.integrations.celery_beat import _expression, read
from leasework.model.schedule import cron

_FUNCTIONS = "def report(kind, copies=1): ...\ndef ping(): ...\ndef bound(self, to): ..."
_START = datetime(2026, 2, 26, 21, 58, tzinfo=UTC)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module with functions that are Celery's tasks."""
    module = ModuleType("beat_tasks")
    monkeypatch.setitem(sys.modules, "beat_tasks", module)
    exec(_FUNCTIONS, module.__dict__)
    return module


@pytest.fixture
def celery(tasks: ModuleType) -> Celery:
    app = Celery("beat_tasks", broker="memory://", set_as_current=False)
    app.task(name="beat_tasks.report", shared=False)(tasks.report)
    app.task(name="beat_tasks.ping", shared=False)(tasks.ping)
    app.task(name="beat_tasks.bound", bind=True, shared=False)(tasks.bound)
    return app


def entry(given: Any, task: str = "ping", **more: Any) -> dict[str, Any]:
    return {"task": f"beat_tasks.{task}", "schedule": given, **more}


def planned(code: str) -> dict[str, Any]:
    """What leasework has after the decorators were changed and the code ran."""
    app, module = App(dsn="postgresql://nobody@localhost/none"), sys.modules["beat_tasks"]
    exec(_FUNCTIONS.replace("self, ", ""), module.__dict__)
    for name in ("report", "ping", "bound"):
        setattr(module, name, app.task(getattr(module, name)))
    there: dict[str, Any] = {}
    exec(code, there)
    there["add_schedules"](app)
    return app._planned


def matches(given: crontab, moment: datetime) -> bool:
    """Celery's rule."""
    return (
        moment.minute in given.minute
        and moment.hour in given.hour
        and moment.day in given.day_of_month
        and moment.month in given.month_of_year
        and moment.isoweekday() % 7 in given.day_of_week
    )


@pytest.mark.parametrize(
    "given",
    [
        crontab(),
        crontab(minute="*/7", hour="*/5"),
        crontab(minute=[1, 13, 14, 15, 50], hour="0,8-17/2"),
        crontab(minute=0, hour=0, day_of_month="*/9"),
        crontab(minute="30", hour="22-2"),
        crontab(minute=0, hour=12, day_of_week="mon-fri"),
        crontab(minute=0, hour=12, day_of_week="sun"),
        crontab(minute=0, hour=12, day_of_week="*/2"),
        crontab(minute=0, hour=12, day_of_week="0-6", day_of_month=13),
        crontab(minute=5, hour=4, day_of_month="1,15", month_of_year="3,6-8"),
    ],
    ids=str,
)
def test_a_crontab_fires_at_the_same_minutes_as_in_celery(given):
    spec, moment, fired = cron(_expression(given), "UTC"), _START, 0
    due = spec.next_after(moment)
    while fired < 25 and moment < _START + timedelta(days=60):
        moment += timedelta(minutes=1)
        assert (moment == due) == matches(given, moment), moment
        if moment == due:
            due, fired = spec.next_after(moment), fired + 1
    assert fired


def test_all_that_can_be_translated_runs_as_code_for_leasework(celery):
    celery.conf.timezone = "Asia/Seoul"
    celery.conf.beat_schedule = {
        "weekly": entry(crontab(minute=0, hour=7, day_of_week="mon"), "report", args=["weekly"]),
        "seconds": entry(30.0, options={"queue": "fast", "expires": 9}),
        "timedelta": entry(timedelta(hours=2), "bound", kwargs={"to": "kim"}),
        "schedule": entry(schedule(45)),
        "long": entry(timedelta(days=12, minutes=1, seconds=1)),
    }
    found = read(celery)
    assert not found.refused
    assert "# Celery's option expires=9 is left out" in found.code
    got = planned(found.code)
    assert {name: plan.spec.to_json() for name, plan in got.items()} == {
        "weekly": {"kind": "cron", "expression": "0 7 * * 1", "timezone": "Asia/Seoul"},
        "seconds": got["seconds"].spec.to_json() | {"kind": "every", "seconds": 30.0},
        "timedelta": got["timedelta"].spec.to_json() | {"kind": "every", "seconds": 7200.0},
        "schedule": got["schedule"].spec.to_json() | {"kind": "every", "seconds": 45.0},
        "long": got["long"].spec.to_json() | {"kind": "every", "seconds": 1036861.0},
    }
    assert got["weekly"].job.payload == '{"kind":"weekly"}'
    assert got["timedelta"].job.payload == '{"to":"kim"}'
    assert got["seconds"].job.queue == "fast"


@pytest.mark.parametrize(("broker", "sign"), [("redis://x", 1), ("amqp://x", -1)])
def test_queue_and_priority_of_an_entry_or_its_task_are_kept(celery, tasks, broker, sign):
    """A lower number comes first on Redis and in leasework, and a higher one in RabbitMQ."""
    celery.conf.broker_url = broker
    celery.tasks["beat_tasks.ping"].priority = 3
    celery.tasks["beat_tasks.ping"].queue = "slow"
    celery.conf.beat_schedule = {
        "own": entry(30.0, options={"priority": 7, "queue": "fast"}),
        "of the task": entry(30.0),
        "none": entry(30.0, "bound", kwargs={"to": "kim"}),
    }
    got = planned(read(celery).code)
    assert (got["own"].job.priority, got["own"].job.queue) == (7 * sign, "fast")
    assert (got["of the task"].job.priority, got["of the task"].job.queue) == (3 * sign, "slow")
    assert (got["none"].job.priority, got["none"].job.queue) == (0, "default")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (entry(solar.__new__(solar)), "no schedule like Celery's solar"),
        (entry(crontab(day_of_month=1, day_of_week=1)), "match both"),
        (entry(0.2), "seconds"),
        (entry(30, "gone"), "no task 'beat_tasks.gone'"),
        (entry(30, "report"), "cannot take its arguments"),
        (entry(30, "ping", args=["too many"]), "cannot take its arguments"),
    ],
    ids=["solar", "both days", "too often", "no task", "too few", "too many"],
)
def test_what_leasework_would_run_at_other_times_or_not_at_all_is_refused(celery, given, why):
    celery.conf.beat_schedule = {"odd": given, "good": entry(30)}
    found = read(celery)
    assert why in found.refused["odd"] and list(planned(found.code)) == ["good"]
    assert "# not converted: 'odd'" in found.code


class BusinessDays(crontab):
    """Decides by itself when it is due."""


def test_arguments_are_given_as_the_handler_takes_them_or_refused(celery, tasks):
    exec("def more(a, *rest, b=1, **others): ...", tasks.__dict__)
    celery.task(name="beat_tasks.more", shared=False)(tasks.more)
    celery.conf.beat_schedule = {
        "named": entry(60, "more", args=("x",), kwargs={"shop": "eu"}),
        "nameless": entry(60, "more", args=("x", "y")),
        "moment": entry(60, "report", kwargs={"kind": datetime(2026, 1, 1)}),
        "own": entry(BusinessDays(hour=3)),
    }
    found = read(celery)
    assert "arguments={'a': 'x', 'shop': 'eu'}" in found.code
    assert found.refused.keys() == {"nameless", "moment", "own"}


def test_the_machines_local_time_is_refused(celery):
    celery.conf.update(enable_utc=False, beat_schedule={"odd": entry(crontab())})
    assert "timezone" in read(celery).refused["odd"]


def test_the_command_prints_the_code_and_ends_with_1_if_it_refuses_something(celery, tasks):
    tasks.app = celery
    celery.conf.beat_schedule = {"good": entry(30)}
    run = CliRunner().invoke(root, ["import", "celery-beat", "beat_tasks:app"])
    assert run.exit_code == 0 and list(planned(run.stdout)) == ["good"]
    celery.conf.beat_schedule = {"odd": entry(0.2)}
    run = CliRunner().invoke(root, ["import", "celery-beat", "beat_tasks:app"])
    assert run.exit_code == 1 and "'odd' was not converted" in run.stderr
    assert planned(run.stdout) == {}


def test_the_command_says_what_is_no_celery_app(tasks):
    tasks.app = App(dsn="postgresql://x")
    run = CliRunner().invoke(root, ["import", "celery-beat", "beat_tasks:app"])
    assert run.exit_code == 1 and "beat_tasks:app is not a Celery" in run.stderr
