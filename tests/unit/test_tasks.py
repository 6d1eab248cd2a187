"""Tasks, schedules and jobs as code defines them: what does not fit is refused right there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from leasework import App, Backoff, Context, Deadline, Task
from leasework.app.definitions import _OWN, _REFUSED, ScheduleGiven
from leasework.errors import (
    BadJob,
    BadPayload,
    BadSchedule,
    ConfigError,
    DuplicateTask,
    LeaseworkError,
)
from leasework.jobs.tasks import TaskGiven, TaskOptions
from leasework.model.job import JOB_OPTIONS, JobGiven, OnConflict
from leasework.model.schedule import every

Define = Callable[..., Any]


@pytest.fixture
def app() -> App:
    """Nothing is opened before it is needed."""
    return App("postgresql://nobody@nowhere.invalid/none", release="r1")


async def noop(n: int = 0) -> None:
    """Do nothing."""


def plain() -> None: ...


# -- tasks with options ------------------------------------------------------------------------
def test_a_schedule_keeps_the_options_of_the_task_it_is_given(app: App) -> None:
    made = app.task(name="t", queue="mail")(noop).using(timeout=600, max_attempts=1, tags=["x"])
    app.periodic("0 7 * * *", name="s", queue="reports")(made)
    job = app._planned["s"].job
    assert (job.queue, job.timeout, job.max_attempts, job.tags) == ("reports", 600, 1, ("x",))
    stored = app.schedules._planned("put", made, app._planned["s"].spec, {}).job
    assert (stored.queue, stored.timeout) == ("mail", 600)


def test_callbacks_and_jobs_of_a_deployment_keep_the_options_of_their_task(app: App) -> None:
    tell = app.task(name="tell")(lambda failure=None, breach=None: None).using(queue="pages")
    task = app.task(name="t", on_failure=tell, deadline=Deadline(minutes=1, on_breach=tell))(noop)
    options = task.function.job_options
    assert options.on_failure and options.on_failure.options["queue"] == "pages"
    assert options.deadline.callback.options["queue"] == "pages"


@pytest.mark.parametrize(
    "wrong", [{"run_in": 60}, {"unique": "k"}, {"on": object()}, {"on_conflict": "raise"}]
)
def test_options_of_one_job_are_refused_for_jobs_that_come_later(
    app: App, wrong: dict[str, Any]
) -> None:
    made = app.task(name="t")(lambda failure=None: None).using(**wrong)
    [name] = wrong
    for define in (
        app.periodic("0 7 * * *"),
        lambda task: app.task(name="other", on_failure=task)(noop),
        lambda task: app.schedules._planned("s", task, every(seconds=60), {}),
    ):
        with pytest.raises(BadJob, match=f"cannot use a task with {name}=…"):
            define(made)


def test_a_worker_runs_the_queues_of_its_schedules(app: App) -> None:
    app.periodic("0 7 * * *", queue="reports")(app.task(name="t")(noop))
    assert app._queues(None) == {"default": 100, "reports": 100}


def test_a_worker_runs_the_queues_of_its_callbacks(app: App) -> None:
    app.configure(release="1")

    @app.task
    def failed(failure: dict) -> None: ...

    @app.task
    def breached(breach: dict) -> None: ...

    late = Deadline(minutes=1, on_breach=breached.using(queue="urgent"))
    app.task(name="t", on_failure=failed.using(queue="ops"), deadline=late)(noop)
    assert set(app._queues(None)) == {"default", "urgent", "ops"}


def test_a_worker_runs_the_queues_of_callbacks_that_a_schedule_names_itself(app: App) -> None:
    @app.task
    def failed(failure: dict) -> None: ...

    @app.task
    def breached(breach: dict) -> None: ...

    late = Deadline(minutes=1, on_breach=breached.using(queue="urgent"))
    planned = app.every(seconds=60, on_failure=failed.using(queue="ops"), deadline=late)
    planned(app.task(name="t")(noop))
    assert set(app._queues(None)) == {"default", "urgent", "ops"}


# -- tasks -------------------------------------------------------------------------------------
def test_a_task_is_called_as_if_undecorated(app: App) -> None:
    @app.task
    def double(n: int) -> int:
        """Twice."""
        return 2 * n

    assert isinstance(double, Task) and double(4) == 8
    assert double.__doc__ == "Twice." and double.name.endswith("double")
    assert app.task(name="x")(noop).name == "x"


def test_two_tasks_of_one_name_are_refused_with_both_places(app: App) -> None:
    app.task(name="t")(noop)
    with pytest.raises(DuplicateTask, match=r"two tasks are named 't': .*noop and .*plain.*name="):
        app.task(name="t")(plain)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"queu": "a"}, ConfigError, "task has no option 'queu'. Did you mean 'queue'"),
        ({"retries": 3}, ConfigError, "task has no option 'retries'. Known: "),
        ({"max_attempt": 3}, ConfigError, "Did you mean 'max_attempts'"),
        ({"name": ""}, ConfigError, "a task's name must be text"),
        ({"name": "x" * 201}, ConfigError, "at most 200"),
        ({"queue": ""}, BadJob, "queue must be text"),
        ({"priority": "high"}, BadJob, "priority must be a whole number"),
        ({"max_attempts": 0}, BadJob, "max_attempts must be a whole number from 1"),
        ({"timeout": 0}, BadJob, "timeout must be a number"),
        ({"requeue_after": 0.1}, BadJob, "requeue_after must be a number from 1"),
        ({"executor": "gpu"}, BadJob, "async, thread or process"),
        ({"executor": "thread"}, BadJob, "cannot run in a thread"),
        ({"backoff": 5}, BadJob, "backoff must be a Backoff"),
        ({"history": "no"}, BadJob, "history must be True or False"),
    ],
    ids=str,
)
def test_a_tasks_option_that_does_not_fit_is_named(
    app: App, options: dict[str, Any], kind: type[LeaseworkError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        app.task(**options)(noop)
    assert not list(app.registry)


def test_a_plain_function_cannot_be_async(app: App) -> None:
    with pytest.raises(BadJob, match="needs a coroutine function"):
        app.task(executor="async")(plain)


@pytest.mark.parametrize("wrong", [5, "noop", None])
def test_only_functions_are_tasks(app: App, wrong: Any) -> None:
    with pytest.raises(BadJob, match="a task is a function"):
        app.task(name="t")(wrong)


@pytest.mark.parametrize("name", [*JOB_OPTIONS, "on"])
def test_a_handlers_argument_may_have_the_name_of_an_option(app: App, name: str) -> None:
    space: dict[str, Any] = {}
    exec(f"async def resize(path, {name}=3): ...", space)
    task = app.task(name="t")(space["resize"])
    job = task.using(priority=7).job("a", **{name: 99})
    assert json.loads(job.payload) == {"path": "a", name: 99}
    assert (job.priority, job.queue) == (7, "default")


def test_collected_arguments_have_names(app: App) -> None:
    @app.task(name="t")
    async def work(queue: Context, *history: Any, **deadline: Any) -> None: ...

    assert work.job(self=1, n=2).payload == '{"self":1,"n":2}'
    with pytest.raises(BadJob, match=r"stored by its name, and these have none.*Got: \(1,\)"):
        work.job(1)


def test_arguments_are_stored_by_their_names_however_they_are_given(app: App) -> None:
    @app.task(name="t")
    async def work(ctx: Context, a: int, b: int = 2, *, c: int = 3) -> None: ...

    payloads = [work.job(1, 5), work.job(1, b=5), work.job(a=1, b=5)]
    assert {job.payload for job in payloads} == {'{"a":1,"b":5}'}
    for wrong in (lambda: work.job(1, 2, 3), lambda: work.job(1, a=1), lambda: work.job(c=3)):  # type: ignore[call-arg, misc]
        with pytest.raises(BadJob, match="cannot take these arguments"):
            wrong()


def test_a_schedules_arguments_may_have_the_names_of_options(app: App) -> None:
    async def work(timeout: int) -> None: ...

    app.every(seconds=1, arguments={"timeout": 3}, timeout=60)(work)
    [planned] = app._planned.values()
    assert (planned.job.payload, planned.job.timeout) == ('{"timeout":3}', 60)


def test_options_add_up_and_leave_the_task_as_it_is(app: App) -> None:
    task = app.task(name="t", queue="q")(noop)
    mail = task.using(queue="mail", priority=3)
    urgent = mail.using(priority=-1)
    found = [(t.job().queue, t.job().priority) for t in (task, mail, urgent)]
    assert found == [("q", 0), ("mail", 3), ("mail", -1)]
    assert repr(urgent) == "<Task t>" and urgent.name == "t"


def test_an_enqueue_without_an_event_loop_says_what_to_use_instead(app: App) -> None:
    task = app.task(name="t")(noop)
    with pytest.raises(ConfigError, match=r"needs a running event loop.*app\.sync\.enqueue"):
        task.enqueue()


def test_a_connection_belongs_to_the_enqueue(app: App) -> None:
    with pytest.raises(BadJob, match=r"using\(on=…\) works only with enqueue\(\).*App\.enqueue"):
        app.task(name="t")(noop).using(on=object()).job()


# -- jobs --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"usr_id": 1}, BadJob, "it has no argument .usr_id.. Missing.* Did you mean 'user_id'"),
        ({"user_id": 1, "priorty": 1}, BadJob, "Did you mean 'priority'"),
        ({"user_id": 1, "priority": 1}, BadJob, r"task\.using\(priority=…\)\.enqueue"),
        ({}, BadJob, "missing a required argument: 'user_id'"),
        (
            {"mail": 1, "on": 2},
            BadJob,
            r"no argument 'mail' or 'on'. Missing: 'user_id'. Got.* Known",
        ),
        ({"user_id": "7"}, BadPayload, "user_id does not fit its annotation: Expected `int`"),
        ({"user_id": None}, BadPayload, "Expected `int`, got `null`"),
        ({"user_id": 1, "other": {1, 2}}, BadPayload, "arguments of t: not JSON"),
        ({"user_id": 1, "other": "\x00"}, BadPayload, "NUL"),
        ({"user_id": 1, "share": "half"}, BadPayload, "share does not fit"),
        ({"user_id": 1, "ids": [1, "2"]}, BadPayload, "ids does not fit"),
        ({"user_id": 1, "way": "by air"}, BadPayload, "way does not fit"),
    ],
    ids=str,
)
def test_a_job_that_does_not_fit_is_refused_before_it_is_sent(
    app: App, given: dict[str, Any], kind: type[LeaseworkError], words: str
) -> None:
    @app.task(name="t")
    async def work(
        user_id: int,
        share: float | None = None,
        ids: list[int] = [],  # noqa: B006
        way: Literal["by sea", "by land"] = "by sea",
        other: Any = None,
    ) -> None: ...

    with pytest.raises(kind, match=words):
        work.job(**given)


def test_an_unknown_argument_and_the_missing_ones_are_named(app: App) -> None:
    async def send(user_id: int, mail_text: str, *, copy: bool) -> None: ...
    async def note(user_id: int, **more: Any) -> None: ...

    with pytest.raises(BadJob) as caught:
        app.task(name="send")(send).job(1, mail="x")  # type: ignore[call-arg]
    assert str(caught.value) == (
        "task send cannot take these arguments: it has no argument 'mail'. "
        "Missing: 'mail_text', 'copy'. Got: ['user_id', 'mail']. Did you mean 'mail_text'?"
    )
    with pytest.raises(BadJob, match="arguments: missing a required argument: 'user_id'"):
        app.task(name="note")(note).job(mail="x")


def test_a_context_that_is_not_recognised_is_told_how_to_be_one(app: App) -> None:
    async def bare(context, order: int) -> None: ...  # type: ignore[no-untyped-def]
    async def late(order: int, ctx: Context) -> None: ...
    async def typed(order: int) -> None: ...

    words = "Give the handler's arguments, without ctx. If 'context' is the context, write context:"
    with pytest.raises(BadJob, match=words):
        app.task(bare).job(1)
    with pytest.raises(BadJob, match="If 'context' is the context"):
        app.every(seconds=1, arguments={"order": 1}, name="each")(app.task(name="n")(bare))
    with pytest.raises(BadJob, match="context must be the first parameter of the handler: ctx:"):
        app.task(late).job(1)  # type: ignore[call-arg]
    with pytest.raises(BadJob, match=r"without ctx\.$"):
        app.task(typed).job()  # type: ignore[call-arg]


class Way(StrEnum):
    SEA = "by sea"


class Half(float):
    """As numpy's float64."""


@pytest.mark.parametrize(
    "given",
    [
        {"user_id": True},
        {"user_id": 10**30, "share": 1, "ids": (1, 2)},
        {"user_id": 1, "share": Half(0.5), "note": None, "rows": ["x"]},
        {"user_id": 1, "share": None, "ids": [], "way": Way.SEA, "other": [None, {"a": "b"}]},
    ],
    ids=str,
)
def test_a_value_that_its_annotation_allows_is_stored_as_it_is(
    app: App, given: dict[str, Any]
) -> None:
    @app.task(name="t")
    async def work(
        user_id: int,
        share: float | None = None,
        ids: list[int] = [],  # noqa: B006
        way: Literal["by sea"] = "by sea",
        other: Any = None,
        note: str = None,  # type: ignore[assignment]  # noqa: RUF013
        rows: list[int] | list[str] = [],  # noqa: B006
    ) -> None: ...

    assert json.loads(work.job(**given).payload) == json.loads(json.dumps(given))


def test_a_missing_argument_is_told_with_those_that_were_given(app: App) -> None:
    @app.task(name="t")
    async def work(user_id: int, email: str) -> None: ...

    with pytest.raises(BadJob, match=r"missing a required argument: 'email'.* Got: \['user_id'\]"):
        work.job(1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"run_in": -1}, "run_in must be a number from 0"),
        ({"on_conflict": "replce", "unique": "k"}, "'replace'"),
        ({"run_at": datetime(2030, 1, 1)}, "with a time zone"),
        ({"run_in": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "not both"),
        ({"prioritty": 1}, "Did you mean 'priority'"),
    ],
    ids=str,
)
def test_an_option_that_does_not_fit_is_refused_before_there_is_a_job(
    app: App, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadJob, match=words):
        app.task(name="t")(noop).using(**options)


def test_type_checkers_know_the_options_that_there_are() -> None:
    assert set(JobGiven.__annotations__) == set(JOB_OPTIONS)
    assert set(TaskGiven.__annotations__) == {f.name for f in fields(TaskOptions)}
    of_a_schedule = {*_OWN, *JOB_OPTIONS} - {*_REFUSED}
    assert set(ScheduleGiven.__annotations__) == of_a_schedule


def test_a_job_has_its_tasks_options_and_its_own_over_them(app: App) -> None:
    task = app.task(name="t", queue="q", priority=5, timeout=9, history=False)(noop)
    job = task.using(priority=1, unique="k", on_conflict="replace", run_in=5).job(n=1)
    assert (job.queue, job.priority, job.timeout, job.history) == ("q", 1, 9, False)
    assert job.on_conflict is OnConflict.REPLACE and job.payload == '{"n":1}'


@pytest.mark.parametrize("annotated", [True, False])
def test_the_context_is_no_argument(app: App, annotated: bool) -> None:
    async def by_name(ctx: Any, n: int) -> None: ...

    async def by_type(context: Context, n: int) -> None: ...

    job = app.task(name="t")(by_type if annotated else by_name).job(n=1)
    assert job.payload == '{"n":1}'


class EmailContext:
    """A user's own type."""


@pytest.mark.parametrize("written", [EmailContext, "EmailContext", "mails.EmailContext"])
def test_a_type_that_only_sounds_like_a_context_is_an_argument(app: App, written: Any) -> None:
    async def send(mail: Any) -> None: ...

    send.__annotations__["mail"] = written
    assert not app.task(name="t")(send).function.takes_context


class Callable_:
    def __call__(self) -> None: ...


@pytest.mark.parametrize("function", [partial(noop, 1), Callable_()])
def test_a_task_is_a_function(app: App, function: Any) -> None:
    with pytest.raises(BadJob, match=r"task t is not a function.*def work"):
        app.task(name="t")(function)


def test_a_generator_is_refused_because_its_body_would_never_run(app: App) -> None:
    def plain_() -> Any:
        yield 1

    async def asynchronous() -> Any:
        yield 1

    for function in (plain_, asynchronous):
        with pytest.raises(BadJob, match="would never run"):
            app.task(name="t")(function)


def test_a_task_of_the_main_program_has_the_name_that_other_processes_know(tmp_path: Path) -> None:
    code = "from leasework import App\napp = App()\n@app.task\ndef send() -> None: ...\n"
    (tmp_path / "shop.py").write_text(f"{code}if __name__ == '__main__': print(send.name)\n")
    for given in (["shop.py"], ["-m", "shop"]):
        ran = subprocess.run([sys.executable, *given], cwd=tmp_path, capture_output=True, text=True)
        assert ran.stdout == "shop.send\n", ran.stderr


def test_the_limit_of_arguments_is_that_of_configure_too(app: App) -> None:
    task = app.task(name="t")(noop)
    app.configure(payload_limit=4)
    with pytest.raises(BadPayload, match="over the limit of 4"):
        task.job(n=12345)


async def test_only_jobs_are_enqueued(app: App) -> None:
    app.task(name="t")(noop)
    client = await app.client()
    for wrong in ({"task": "t"}, "t", noop, None):
        with pytest.raises(BadJob, match=r"Make one with task\.job"):
            await client.enqueue(wrong)  # type: ignore[arg-type]
    assert await client.enqueue_many([]) == []


# -- schedules ---------------------------------------------------------------------------------
MOMENT = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("define", "words"),
    [
        (lambda app: app.periodic("61 * * * *"), "61"),
        (lambda app: app.periodic("every day"), "every day"),
        (lambda app: app.periodic(""), "cron"),
        (lambda app: app.periodic("* * * *"), "cron"),
        (lambda app: app.periodic("0 0 * * *", timezone="Asia/Seol"), "IANA name"),
        (lambda app: app.periodic("0 0 * * *", timezone=""), "time zone"),
        (lambda app: app.every(seconds=0), "seconds"),
        (lambda app: app.every(seconds=float("nan")), "seconds"),
        (lambda app: app.every(seconds="5"), "seconds"),
        (lambda app: app.once(at=datetime(2030, 1, 1)), "time zone"),
        (lambda app: app.once(at="2030-01-01"), "datetime"),
        (lambda app: app.every(seconds=5, mised="all"), "Did you mean 'missed'"),
        (lambda app: app.every(seconds=5, unique="k"), "no option 'unique'"),
        (lambda app: app.every(seconds=5, run_in=5), "no option 'run_in'"),
        (lambda app: app.every(seconds=5, missed="al"), "'all'"),
        (lambda app: app.every(seconds=5, grace_seconds=-1), "grace_seconds"),
        (lambda app: app.every(seconds=5, grace_seconds=float("nan")), "grace_seconds"),
        (lambda app: app.every(seconds=5, missed="skip", grace_seconds=0), "at least 0.1"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(
    app: App, define: Callable[[App], Define], words: str
) -> None:
    with pytest.raises(BadSchedule, match=words):
        define(app)(noop)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"arguments": {"m": 1}}, BadJob, "Did you mean|Known"),
        ({"arguments": {"n": {1}}}, BadPayload, "argument n does not fit its annotation"),
        ({"arguments": [1]}, BadSchedule, "arguments must be a dict"),
        ({"queue": ""}, BadJob, "queue"),
        ({"name": "x" * 201}, ConfigError, "a schedule's name"),
    ],
    ids=str,
)
def test_what_a_schedule_enqueues_is_checked_where_it_is_defined(
    app: App, options: dict[str, Any], kind: type[LeaseworkError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        app.every(seconds=5, **options)(noop)


def test_two_schedules_of_one_name_are_refused(app: App) -> None:
    task = app.task(name="t")(noop)
    app.every(seconds=5)(task)
    with pytest.raises(BadSchedule, match="two schedules are named 't'"):
        app.every(seconds=9)(task)
    app.every(seconds=9, name="other")(task)


def test_a_decorator_can_be_used_twice(app: App) -> None:
    hourly = app.periodic("0 * * * *", missed="skip")
    hourly(app.task(name="a")(noop))
    hourly(app.task(name="b")(plain))
    assert [planned.missed for planned in app._planned.values()] == ["skip", "skip"]


# -- releases ----------------------------------------------------------------------------------
def test_a_release_without_a_name_follows_what_is_defined() -> None:
    def release(upcast: bool = False, scheduled: Any = None, **options: Any) -> str:
        app = App("postgresql://")

        async def page(breach: dict[str, Any]) -> None: ...

        app.task(name="page")(page)
        task = app.task(name="t", **options)(noop)
        if upcast:
            task.upcast(1)(dict)
        app.every(seconds=5, name="s", **scheduled or {})(app.task(name="scheduled")(noop))
        return app.release

    deadline = Deadline(minutes=5, on_breach="page")
    kinds: list[dict[str, Any]] = [
        {}, {"scheduled": {"arguments": {"n": 2}}}, {"scheduled": {"priority": 1}}, {"version": 2},
        {"version": 2, "upcast": True}, {"queue": "q"}, {"timeout": 9}, {"max_attempts": 2},
        {"tags": ["eu"]}, {"executor": "process"}, {"backoff": Backoff(base=timedelta(seconds=1))},
        {"deadline": deadline}, {"requeue_after": 9}, {"history": False},
    ]  # fmt: skip
    releases = [release(**kind) for kind in kinds]
    assert len(set(releases)) == len(kinds) and releases[0].startswith("auto-")
    assert releases == [release(**kind) for kind in kinds]


@pytest.mark.parametrize("queues", [{"q": 0}, {"q": True}, {"q": "5"}, {"": 1}, {"q": 10_001}])
async def test_a_node_takes_queues_with_numbers(app: App, queues: Any) -> None:
    with pytest.raises(ConfigError, match="queue"):
        async with app.node(queues=queues):
            raise AssertionError("it took part")


def test_a_backoff_is_checked_where_it_is_written() -> None:
    with pytest.raises(BadJob, match="a backoff's factor must be a number from 1 to 100"):
        Backoff(factor=0.5)
