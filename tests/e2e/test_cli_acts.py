"""What a person does from the command line: each act an event, many at once after a preview."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import click
import psycopg
import pytest
from click.testing import CliRunner, Result

from leasework import App, Limits
from leasework.cli.root import root
from leasework.errors import BadFilter, Unavailable
from leasework.model.filter import JobFilter
from leasework.tuning import Tuning
from leasework.watch.bulk import BulkAction, acts_on


class Cli:
    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def __call__(self, *arguments: str, exits: int = 0, typed: str = "") -> Result:
        environ = {"LEASEWORK_DSN": self.dsn, "NO_COLOR": "1"}
        done = CliRunner().invoke(
            root, arguments, prog_name="leasework", env=environ, input=typed or None
        )
        assert done.exit_code == exits, f"{arguments}: {done.output}\n{done.exception!r}"
        return done

    def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), params or None)
            return cursor.fetchall() if cursor.description else []

    def enqueue(self, **request: Any) -> UUID:
        given = json.dumps({"task": "t", **request})
        return self.sql("select id from leasework.enqueue(%s)", given)[0][0]

    def state(self, job: UUID) -> str:
        return self.sql("select state from leasework.jobs where id = %s", job)[0][0]

    def acts(self) -> list[tuple[Any, ...]]:
        query = "select fields ->> 'act', (fields ->> 'count')::int, fields ->> 'via'"
        return self.sql(f"{query} from leasework.events where kind = 'person_acted' order by id")


def done(action: BulkAction) -> tuple[int, int, bool]:
    return action.changed, action.held, action.more


@pytest.fixture
def cli(dsn: str, migrated: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.delenv("LEASEWORK_SCHEMA", raising=False)
    monkeypatch.setenv("LOGNAME", "ada")
    return Cli(dsn)


SCHEDULE = """
insert into leasework.schedule (app, name, spec, described, task_name, job, missed, grace_seconds,
    release, next_at) values (%s, %s,
    '{"kind": "every", "seconds": 60, "anchor": "1970-01-01T00:00:00+00:00"}', 'd', 't',
    '{"queue": "default", "priority": 0, "max_attempts": 5, "history": true, "payload": {}}',
    'latest', 5, 'r', now() - interval '3 days')
"""


def test_a_job_is_given_up_and_its_event_says_by_whom(cli: Cli):
    job = cli.enqueue()
    assert "was discarded" in cli("jobs", "discard", str(job), "--reason", "enough").stdout
    assert cli.state(job) == "discarded"
    assert "has already finished" in cli("jobs", "discard", str(job), exits=1).stderr
    assert cli.acts() == [("discard", 1, "cli")]
    assert cli.sql("select fields ->> 'who' from leasework.events") == [("ada",)]
    assert "no such job" in cli("jobs", "discard", str(UUID(int=1)), exits=1).stderr


def test_every_act_takes_a_reason_that_its_event_keeps(cli: Cli):
    jobs = [str(cli.enqueue(queue="mail")) for _ in range(4)]
    cli.sql(SCHEDULE, "shop", "nightly")
    acts = [
        ("jobs", "cancel", jobs[0]), ("jobs", "discard", jobs[1]), ("jobs", "retry", jobs[1]),
        ("jobs", "reprioritize", jobs[2], "--priority", "3"), ("jobs", "signal", jobs[3], "go"),
        ("queues", "pause", "mail"), ("queues", "resume", "mail"),
        ("queues", "weight", "mail", "gold", "2"),
        ("jobs", "cancel", "--where", "queue:mail", "--yes"),
        ("schedules", "pause", "nightly"), ("schedules", "resume", "nightly"),
        ("schedules", "run", "nightly"), ("schedules", "remove", "nightly"),
        ("silence", "no_leader"),
    ]  # fmt: skip
    for words in acts:
        cli(*words, "--reason", f"why {words[1]}")
    query = "select fields ->> 'reason' from leasework.events"
    told = cli.sql(f"{query} where kind = 'person_acted' order by id")
    assert told == [(f"why {words[1]}",) for words in acts]
    tried = {" ".join(words[: 1 if words[0] == "silence" else 2]) for words in acts}
    limits = (f"limits {act}" for act in ("set", "reset", "pause", "resume"))
    nodes = (f"nodes {act}" for act in ("drain", "resume", "seen", "stop-claiming"))
    takes = {path for path, verb in leaves(root) if any(p.name == "reason" for p in verb.params)}
    assert takes == {*tried, *limits, *nodes, "jobs requeue", "jobs stack"}


def leaves(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from leaves(found, f"{path}{name} ")
        else:
            yield path + name, found


def test_durations_are_shown_where_jobs_are_sorted_by_them(cli: Cli):
    cli.enqueue(queue="mail")
    cli("jobs", "discard", "--where", "queue:mail", "--yes")
    cli.sql("update leasework.job_done set started_at = finished_at - interval '90 seconds'")
    told = cli("jobs", "--state", "discarded", "--sort", "duration", "--wide").stdout
    assert "TOOK" in told and "1 min 30 s" in told, told


def test_many_jobs_are_acted_on_after_a_question(cli: Cli):
    jobs = [cli.enqueue(queue="mail", payload={"user": n % 2}) for n in range(6)]
    other = cli.enqueue(queue="other")
    asked = cli("jobs", "cancel", "--where", "queue:mail args.user:1", typed="n\n", exits=1)
    assert "Cancel 3 jobs?" in asked.stdout
    assert {cli.state(job) for job in jobs} == {"available"}
    cli("jobs", "cancel", "--where", "queue:mail args.user:1", typed="y\n")
    assert [cli.state(job) for job in jobs] == ["available", "cancelled"] * 3
    assert (
        "3 jobs queued to run now"
        in cli("jobs", "retry", "--where", "state:cancelled", "--yes").stdout
    )
    assert "6 jobs discarded" in cli("jobs", "discard", "--where", "queue:mail", "--yes").stdout
    assert cli.state(other) == "available"
    assert "No matching jobs" in cli("jobs", "cancel", "--where", "queue:none").stdout
    assert "--where is empty" in cli("jobs", "cancel", "--where", " ", "--yes", exits=2).stderr
    assert cli.acts() == [("cancel", 3, "cli"), ("retry", 3, "cli"), ("discard", 6, "cli")]
    assert "Did you mean 'queue'" in cli("jobs", "cancel", "--where", "queu:x", exits=1).stderr
    for wrong in (["jobs", "cancel"], ["jobs", "cancel", str(other), "--where", "queue:mail"]):
        assert "or --where" in cli(*wrong, exits=2).stderr


def test_waiting_jobs_are_given_another_priority_and_the_event_says_by_whom(cli: Cli):
    jobs = [cli.enqueue(queue="mail") for _ in range(3)]
    rows = "select priority from leasework.jobs order by id"
    told = cli("jobs", "reprioritize", str(jobs[0]), "--priority", "-7").stdout
    assert "was given the priority -7" in told and cli.sql(rows) == [(-7,), (0,), (0,)]
    asked = cli("jobs", "reprioritize", "--where", "queue:mail", "--priority", "5", typed="y\n")
    assert "Reprioritize 3 jobs?" in asked.stdout
    assert "3 jobs given the priority 5" in asked.stdout and cli.sql(rows) == [(5,)] * 3
    assert cli.acts() == [("reprioritize", 1, "cli"), ("reprioritize", 3, "cli")]
    assert cli.sql("select fields ->> 'on' from leasework.events order by id") == [
        (f"job {jobs[0]} to -7",), ("jobs queue:mail to 5",),
    ]  # fmt: skip
    for wrong in (str(jobs[0]), "--where=queue:mail"):
        given = ["jobs", "reprioritize", wrong, "--yes", "--priority", "99999"]
        assert "from -32768 to 32767" in cli(*given, exits=1).stderr
    given = ["jobs", "reprioritize", "--where", "state:discarded", "--yes", "--priority", "1"]
    assert "changes no jobs in this state" in cli(*given, exits=1).stderr
    cli("jobs", "discard", str(jobs[0]))
    done = cli("jobs", "reprioritize", str(jobs[0]), "--priority", "1", exits=1)
    assert "has already finished" in done.stderr


def test_the_event_of_an_act_has_no_secret_of_its_filter(cli: Cli):
    cli.enqueue(queue="mail", payload={"api_token": "s3cret"})
    given = "args.api_token:s3cret queue:mail"
    assert "1 job cancelled" in cli("jobs", "cancel", "--where", given, "--yes").stdout
    on = "select fields ->> 'on' from leasework.events where kind = 'person_acted'"
    assert cli.sql(on) == [("jobs args.api_token:•••••• queue:mail",)]


@pytest.fixture
def in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("step_rows", "step_jobs", "page_bad_rows"):
        monkeypatch.setattr(Tuning, name, 2)
    monkeypatch.setattr(Tuning, "preview_steps", 1)


def test_an_action_goes_on_to_the_last_of_many_jobs(cli: Cli, in_small_steps: None):
    jobs = [cli.enqueue(queue="mail") for _ in range(5)]
    others = [cli.enqueue(queue="other") for _ in range(7)]
    asked = cli("jobs", "cancel", "--where", "queue:mail", typed="n\n", exits=1).stdout
    assert "Cancel 0 or more jobs?" in asked
    told = cli("jobs", "cancel", "--where", "queue:mail", "--yes", "--reason", "recall").stdout
    assert told == "5 jobs cancelled, or cancellation requested if running.\n"
    assert {cli.state(job) for job in jobs} == {"cancelled"}
    assert {cli.state(job) for job in others} == {"available"}
    errors = cli.sql("select distinct reason from leasework.jobs where queue = 'mail'")
    assert len(errors) == 1 and "recall" in errors[0][0]
    told = cli("jobs", "retry", "--where", "queue:mail state:cancelled", "--yes").stdout
    assert told == "5 jobs queued to run now.\n"
    assert {cli.state(job) for job in jobs} == {"available"}

    cli.sql("update leasework.job set ready = false, run_at = now() + interval '1 day'")
    cli("jobs", "cancel", str(jobs[0]))
    cli.sql("update leasework.job_done set state = 'quarantined' where id = %s", jobs[0])
    told = cli("jobs", "discard", "--where", "queue:mail", "--yes", "--reason", "incident").stdout
    assert told == "5 jobs discarded.\n"
    assert {cli.state(job) for job in jobs} == {"discarded"}


def test_an_action_says_that_a_transaction_holds_a_matching_job(cli: Cli):
    jobs = [cli.enqueue(queue="mail") for _ in range(3)]
    with psycopg.connect(cli.dsn) as holder:
        holder.execute("select from leasework.job where id = %s for update", [jobs[1]])
        for act, told in (("cancel", "2 jobs cancelled"), ("discard", "0 jobs discarded")):
            done = cli("jobs", act, "--where", "queue:mail", "--yes", exits=1)
            assert done.stdout.startswith(told)
            assert done.stderr == (
                "leasework: 1 job was skipped because a transaction holds its row. "
                "Repeat the command for the rest.\n"
            )
    told = cli("jobs", "cancel", "--where", "queue:mail", "--yes").stdout
    assert told == "1 job cancelled, or cancellation requested if running.\n"
    assert {cli.state(job) for job in jobs} == {"cancelled"}


async def test_a_locked_job_is_tried_once_more_and_then_skipped(
    migrated: str, monkeypatch: pytest.MonkeyPatch
):
    app = App(migrated)

    @app.task(name="t")
    async def work() -> None: ...

    job = await work.using(run_in=100.0).enqueue()
    operator = await app.operator("ada", "cli")
    retry, asked = operator.store.retry_many, list[UUID]()

    async def noted(ids: Sequence[UUID], *rest: Any) -> dict[UUID, str]:
        asked.extend(ids)
        return await retry(ids, *rest)

    monkeypatch.setattr(operator.store, "retry_many", noted)
    async with await psycopg.AsyncConnection.connect(migrated) as holder:
        await holder.execute("select from leasework.job where id = %s for update", [job.id])
        assert done(await operator.bulk("retry", JobFilter(state="scheduled"), "")) == (0, 1, False)
        assert asked == [job.id] * 2
        asked.clear()

        async def freed(ids: Sequence[UUID], *rest: Any) -> dict[UUID, str]:
            where = await noted(ids, *rest)
            await holder.rollback()
            return where

        monkeypatch.setattr(operator.store, "retry_many", freed)
        await holder.execute("select from leasework.job where id = %s for update", [job.id])
        assert done(await operator.bulk("retry", JobFilter(state="scheduled"), "")) == (1, 0, False)
    assert asked == [job.id] * 2
    await app.close()


async def test_an_action_with_a_time_limit_says_that_more_jobs_may_match(
    migrated: str, in_small_steps: None
):
    app = App(migrated)

    @app.task(name="t")
    async def work() -> None: ...

    await app.enqueue_many([work.job() for _ in range(5)])
    operator = await app.operator("ada", "web")
    stopped = await operator.bulk("cancel", JobFilter(task="rare"), "", seconds=0)
    assert done(stopped) == (0, 0, True)
    for expected in ((2, 0, True), (2, 0, True), (1, 0, False)):
        assert done(await operator.bulk("cancel", JobFilter(task="t"), "", seconds=0)) == expected
    await app.close()


async def test_a_job_that_fails_again_meanwhile_is_retried_once(
    migrated: str, in_small_steps: None, monkeypatch: pytest.MonkeyPatch
):
    app = App(migrated)

    @app.task(name="t")
    async def work() -> None: ...

    jobs = [await work.using(run_in=100.0 + n).enqueue() for n in range(5)]
    operator = await app.operator("ada", "cli")
    retry, retried = operator.store.retry_many, list[UUID]()

    async def then_they_fail(ids: Sequence[UUID], *rest: Any) -> dict[UUID, str]:
        """As a worker that is faster than the action: each job waits again, for longer."""
        retried.extend(ids)
        where = await retry(ids, *rest)
        later = "update leasework.job set ready = false, run_at = now() + interval '1 hour'"
        async with await psycopg.AsyncConnection.connect(migrated) as connection:
            await connection.execute(f"{later} where ready")
        return where

    monkeypatch.setattr(operator.store, "retry_many", then_they_fail)
    assert done(await operator.bulk("retry", JobFilter(state="scheduled"), "")) == (5, 0, False)
    assert retried == [job.id for job in jobs]
    await app.close()


@pytest.mark.parametrize(("sent", "unsure"), [(True, ", and perhaps 2 more"), (False, "")])
async def test_what_an_action_has_changed_before_an_error_is_on_record(
    migrated: str, in_small_steps: None, monkeypatch: pytest.MonkeyPatch, sent: bool, unsure: str
):
    app = App(migrated)

    @app.task(name="t")
    async def work() -> None: ...

    await app.enqueue_many([work.job() for _ in range(5)])
    operator = await app.operator("ada", "cli")
    monkeypatch.setattr(Tuning, "step_rows", 100)
    monkeypatch.setattr(Tuning, "step_jobs", 100)
    operator._settings = replace(operator._settings, limits=Limits(batch_rows=2))
    cancel, calls = operator.store.cancel_many, list[int]()

    async def breaks(ids: Sequence[UUID], reason: str, now: Any) -> dict[UUID, str]:
        calls.append(len(ids))
        if len(calls) == 2:
            raise Unavailable("the connection was lost", sent=sent)
        return await cancel(ids, reason, now)

    monkeypatch.setattr(operator.store, "cancel_many", breaks)
    with pytest.raises(Unavailable, match="changed before this error: 2") as lost:
        await operator.bulk("cancel", JobFilter(task="t"), "task:t")
    assert "changed before this error: 2" in lost.value.do
    [acted] = await (await app.inspect()).events(kind="person_acted")
    assert (acted.fields["act"], acted.fields["count"]) == ("cancel", 2)
    assert acted.fields["on"] == f"jobs task:t{unsure}"
    await app.close()


def test_a_refused_action_leaves_no_record(cli: Cli):
    cli.enqueue(queue="mail")
    given = "jobs", "cancel", "--where", "queue:mail", "--yes", "--reason", "x" * 1000
    assert "changed before" not in cli(*given, exits=1).stderr
    assert cli.acts() == []


@pytest.mark.parametrize(
    ("act", "where", "says"),
    [
        ("retry", "queue:mail", "Add a state, such as state:discarded"),
        ("retry", "state:running", "retry changes no jobs in this state. Got: running"),
        ("cancel", "state:completed", "jobs that are available, retryable, running, scheduled"),
        ("discard", "state:cancelled", "discard changes no jobs in this state"),
    ],
)
def test_a_filter_whose_jobs_the_action_cannot_change_is_refused(
    cli: Cli, act: str, where: str, says: str
):
    for sure in ((), ("--yes",)):
        assert says in cli("jobs", act, "--where", where, *sure, exits=1).stderr


async def test_the_dashboard_retries_no_completed_jobs_of_which_it_may_reach_only_some(
    migrated: str,
):
    app = App(migrated)
    operator = await app.operator("ada", "web")
    for wanted, says in ((JobFilter(), "Add a state"), (JobFilter("completed"), "no time limit")):
        with pytest.raises(BadFilter, match=says):
            await operator.bulk("retry", wanted, "", seconds=15)
        with pytest.raises(BadFilter, match=says):
            await operator.preview(wanted, "retry", may_stop=True)
    assert done(await operator.bulk("retry", JobFilter("completed"), "")) == (0, 0, False)
    assert acts_on(None) == acts_on("available") == ["cancel", "discard"]
    assert acts_on("completed") == [] and acts_on("discarded") == ["retry"]
    await app.close()


async def test_a_job_that_completes_after_it_was_listed_does_not_run_again(migrated: str):
    app = App(migrated)
    runs: list[int] = []

    @app.task(name="t")
    async def work(n: int) -> None:
        runs.append(n)

    jobs = [await work.using(run_in=3600).enqueue(n) for n in range(2)]
    operator = await app.operator("ada", "cli")
    matching = operator.reports.matching

    async def then_one_completes(*args: Any) -> Any:
        found = await matching(*args)
        if not runs:
            assert await app.retry(jobs[0].id)
            async with app.node():
                await jobs[0].wait(60)
        return found

    operator.reports.matching = then_one_completes  # type: ignore[method-assign]
    assert done(await operator.bulk("retry", JobFilter(state="scheduled"), "")) == (1, 0, False)
    assert (await jobs[0].get()).state == "completed" and runs == [0]
    assert (await jobs[1].get()).state == "available"
    await app.close()


def test_a_filter_of_the_list_is_not_taken_for_one_of_the_action(cli: Cli):
    job = cli.enqueue(queue="mail")
    given = "jobs", "--queue", "mail", "cancel", "--where", "state:available", "--yes"
    said = cli(*given, exits=2).stderr
    assert "--queue filters the list only. See leasework jobs cancel --help." in said
    assert cli.state(job) == "available"


RUNNING = """
with n as (
    insert into leasework.node (id, token, lease_seconds, app, release, host, pid, version)
    values (gen_random_uuid(), 1, 1000, 'shop', 'r', 'h', 1, '0') returning id
), claimed as (
    insert into leasework.claimed_to (node, queue, level, seat)
    select id, 'default', 1, 1000000 from n
)
update leasework.job set node = n.id, claim_token = 1, claimed_at = now() from n
"""


def test_an_action_on_running_jobs_reaches_all_of_them(cli: Cli):
    columns = "id, queue, task_name, payload"
    made = f"insert into leasework.job ({columns}) select gen_random_uuid(), 'default', 't', '{{}}'"
    cli.sql(f"{made} from generate_series(1, 10100)")
    cli.sql(RUNNING)
    told = cli("jobs", "cancel", "--where", "state:running", "--yes").stdout
    assert told == "10,100 jobs cancelled, or cancellation requested if running.\n"
    assert cli.sql("select count(*) from leasework.job where not cancel_requested") == [(0,)]


def test_the_command_masks_secrets_as_the_dashboard_does(cli: Cli):
    job = cli.enqueue(payload={"user": "ada", "password": "hunter2"})
    for shown in (
        ("jobs", "show", str(job)),
        ("jobs", "show", str(job), "--json"),
        ("jobs", "--json"),
    ):
        told = cli(*shown).stdout
        assert "ada" in told and "hunter2" not in told, shown


def test_a_job_is_shown_with_its_attempts(cli: Cli):
    job = cli.enqueue()
    cli.sql(
        "insert into leasework.attempt (job_id, claim_token, attempt, outcome, error)"
        " values (%s, 7, 1, 'retryable', 'ValueError: no')",
        job,
    )
    cli.sql("update leasework.job set last_error = %s where id = %s", "Traceback:\n  a\nV: no", job)
    [attempt] = json.loads(cli("jobs", "show", str(job), "--json").stdout)["attempts"]
    assert (attempt["attempt"], attempt["token"], attempt["outcome"]) == (1, 7, "retryable")
    shown = cli("jobs", "show", str(job)).stdout
    assert "ValueError: no" in shown
    assert re.search(r"^last_error +Traceback:\n +a\n +V: no$", shown, re.MULTILINE)


def test_a_schedule_runs_now_and_is_removed(cli: Cli):
    cli.sql(SCHEDULE, "default", "nightly")
    cli.sql("update leasework.schedule set next_at = now() + interval '1 minute'")
    told = cli("schedules", "run", "nightly").stdout
    assert "waiting (by hand)" in cli("schedules", "ticks", "nightly").stdout
    [(job,)] = cli.sql("select id from leasework.jobs where schedule = 'nightly'")
    assert str(job) in told
    assert "of default was removed" in cli("schedules", "remove", "nightly").stdout
    assert cli.sql("select 1 from leasework.schedule") == []
    assert "no schedule is named" in cli("schedules", "run", "nightly", exits=1).stderr
    misplaced = "schedules", "--app", "default", "pause", "nightly"
    assert "See leasework schedules pause --help" in cli(*misplaced, exits=2).stderr
    assert [act for act, _, _ in cli.acts()] == ["run now", "remove"]


def test_status_of_one_application_leaves_out_those_that_are_gone(cli: Cli):
    cli.sql(SCHEDULE, "gone-for-good", "nightly")
    cli.sql(
        "insert into leasework.node (id, token, lease_seconds, app, release, host, pid, version)"
        " values (gen_random_uuid(), 1, 1000, 'shop', 'r', 'h', 1, '0')"
    )
    cli.sql(
        "insert into leasework.leader (name, node, token, lease_seconds, acquired_at, renewed_at)"
        " select 'shop', id, 1, 1000, now(), now() from leasework.node"
    )
    cli.sql("insert into leasework.fence values ('shop', 1)")
    assert "'nightly' of 'gone-for-good' is silent" in cli("status", exits=1).stdout
    shown = cli("status", "--app", "shop").stdout
    assert "All is well" in shown and "gone-for-good" not in shown
    assert json.loads(cli("status", "--app", "shop", "--json").stdout)["ok"] is True
    assert "No live node" in cli("status", "--app", "gone-for-good", exits=1).stdout
