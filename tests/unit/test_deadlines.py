"""What a deadline in code may say, and that what is wrong is said where it is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from leasework import App, Deadline
from leasework.errors import BadDeadline, BadJob, LeaseworkError, UnknownTask
from leasework.model.deadline import Promise
from leasework.store.reports import Summary
from leasework.store.rows import UnhandledBreach
from leasework.watch.checks import problems
from leasework.watch.facts import Facts
from tests.support.rows import LEADER, NODE

SOON = datetime(2040, 1, 1, tzinfo=UTC)
NEVER = Deadline(days=1, on_breach="page")


def an_app() -> tuple[App, Any]:
    app = App("postgresql://nowhere")

    @app.task(name="page", queue="pages", priority=-5, max_attempts=9, timeout=3)
    async def page(breach: dict[str, Any]) -> None: ...

    return app, page


async def work() -> None: ...


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs a time"),
        ({"minutes": 0}, "needs a time"),
        ({"minutes": -1}, "not negative"),
        ({"seconds": float("nan")}, "not negative"),
        ({"minutes": "10"}, "not negative"),
        ({"minutes": True}, "not negative"),
        ({"days": 40000}, "100 years"),
        ({"minutes": 1, "since": "startet"}, "Did you mean 'started'"),
        ({"minutes": 1, "until": "sucess"}, "Did you mean 'success'"),
        ({"minutes": 1, "since": "fixed"}, "needs at"),
        ({"minutes": 1, "at": SOON}, "not both"),
        ({"since": "started", "at": SOON}, "not both"),
        ({"at": datetime(2040, 1, 1)}, "with a time zone"),
        ({"at": "tomorrow"}, "with a time zone"),
        ({"minutes": 1, "name": "a\0b"}, "name must be text"),
    ],
)
def test_a_deadline_that_cannot_be_is_refused(options: dict[str, Any], says: str):
    with pytest.raises(BadDeadline, match=says):
        Deadline(on_breach="page", **options)


def test_seconds_may_be_a_timedelta():
    assert Deadline(hours=1, seconds=timedelta(minutes=2), on_breach="t").interval_seconds == 3720


def test_a_deadline_needs_somebody_to_tell():
    with pytest.raises(BadDeadline, match="on_breach"):
        Deadline(minutes=1, on_breach=None)


@pytest.mark.parametrize("given", ["pagee", work, 7, Deadline])
def test_on_breach_must_name_a_task_of_the_application(given: Any):
    app, _ = an_app()
    with pytest.raises(UnknownTask, match="on_breach is not a task"):
        app.task(name="w", deadline=Deadline(minutes=1, on_breach=given))(work)


def test_a_task_of_another_application_is_not_known_here():
    app, _ = an_app()
    _, others = an_app()
    with pytest.raises(UnknownTask):
        app.task(name="w", deadline=Deadline(minutes=1, on_breach=others))(work)


def test_a_callback_must_be_able_to_take_the_facts():
    app, _ = an_app()

    @app.task(name="deaf")
    async def deaf(user_id: int) -> None: ...

    with pytest.raises(BadDeadline, match="parameter named breach"):
        app.task(name="w", deadline=Deadline(minutes=1, on_breach=deaf))(work)


def test_the_callbacks_options_and_the_interval_go_with_the_job():
    app, page = an_app()
    task = app.task(name="w", deadline=Deadline(hours=1, minutes=1, seconds=1, on_breach=page))
    promise = task(work).job().deadline
    assert isinstance(promise, Promise)
    assert (promise.since, promise.seconds, promise.until) == ("scheduled", 3661.0, "success")
    told = {"task": "page", "queue": "pages", "priority": -5, "max_attempts": 9, "timeout": 3}
    assert promise.callback.as_json() == told


def test_one_job_may_have_another_deadline_or_none():
    app, page = an_app()
    task = app.task(name="w", deadline=Deadline(hours=1, on_breach=page))(work)
    sooner = Deadline(minutes=5, on_breach="page")
    assert task.using(deadline=sooner).job().deadline.seconds == 300
    assert task.using(deadline=None).job().deadline is None
    assert not task.job().plain and task.using(deadline=None).job().plain
    for wrong in (timedelta(minutes=1), [sooner]):
        with pytest.raises(BadDeadline, match="must be a Deadline"):
            task.using(deadline=wrong).job()


def test_a_fixed_time_is_for_one_job_and_not_for_a_task_or_a_schedule():
    app, page = an_app()
    fixed = Deadline(at=SOON, on_breach=page)
    task = app.task(name="w")(work)
    assert task.using(deadline=fixed).job().deadline.at == SOON
    with pytest.raises(BadDeadline, match="fixed time"):
        app.task(name="x", deadline=fixed)(work)
    with pytest.raises(BadDeadline, match="fixed time"):
        app.periodic("* * * * *", deadline=fixed)(task)


def test_a_schedules_jobs_carry_the_deadline():
    app, page = an_app()
    task = app.task(name="w")(work)
    app.every(seconds=5, name="s", deadline=Deadline(minutes=1, since="tick", on_breach=page))(task)
    promise = app._planned["s"].job_options()["deadline"]
    assert (promise["since"], promise["on_breach"]["task"]) == ("tick", "page")
    app.every(seconds=5, name="plain")(task)
    assert "deadline" not in app._planned["plain"].job_options()


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"due": "tomorrow", "on_breach": "page"}, BadDeadline, "must be a number"),
        ({"due": NEVER, "on_breach": "page"}, BadDeadline, "must be a number"),
        ({"due": -5, "on_breach": "page"}, BadDeadline, "not negative"),
        ({"due": timedelta(0), "on_breach": "page"}, BadDeadline, "needs a time"),
        ({"due": datetime(2040, 1, 1), "on_breach": "page"}, BadDeadline, "time zone"),
        ({"due": 5}, BadDeadline, "on_breach"),
        ({"due": 5, "on_breach": "pagee"}, UnknownTask, "Did you mean 'page'"),
    ],
)
async def test_one_that_stands_alone_is_checked_before_the_database_is_asked(
    options: dict[str, Any], kind: type[LeaseworkError], says: str
):
    app, _ = an_app()
    with pytest.raises(kind, match=says):
        await app.deadline("books", on=object(), **options)


def test_an_unknown_option_of_a_job_names_deadline():
    app, _ = an_app()
    with pytest.raises(BadJob, match="deadline"):
        app.task(name="w")(work).job(dedline=1)


@pytest.mark.parametrize(
    ("why", "says", "do"),
    [
        ("unknown", "no live node knows the task 'page'", "Start a worker"),
        ("discarded", "'page' was discarded", f"leasework jobs retry {UUID(int=1)}"),
    ],
)
def test_status_names_breaches_of_which_nobody_is_told(why: str, says: str, do: str):
    calm = Summary(0, 0, 0, 0, ())
    rows = [UnhandledBreach(UUID(int=1), "books", "page", UUID(int=job), why) for job in (1, 2)]
    facts = Facts(SOON, calm, [NODE], [LEADER], [], [], rows)
    [problem] = [p for p in problems(facts) if p.kind == "breach_unhandled"]
    assert (
        not problem.info and says in problem.sentence and "'books' and 1 more" in problem.sentence
    )
    assert do in problem.do
    assert not [p for p in problems(structs.replace(facts, unhandled=[])) if "breach" in p.kind]
