"""The reading verbs and the schema on a real database, and what they say when it is not right."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import Any
from uuid import UUID

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

from leasework import App
from leasework.cli.root import root
from tests.support.moments import HALF_A_WEEK_AWAY, WEEK_SECONDS
from tests.support.wait import until_async


class Cli:
    """The command line in this process, on one database."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def __call__(self, *arguments: str, exits: int = 0) -> Any:
        environ = {"LEASEWORK_DSN": self.dsn, "NO_COLOR": "1"}
        done = CliRunner().invoke(root, arguments, prog_name="leasework", env=environ)
        assert done.exit_code == exits, f"{arguments}: {done.output}\n{done.exception!r}"
        return done

    def json(self, *arguments: str, exits: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", exits=exits).stdout)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def refused(self, *arguments: str) -> str:
        """What is said on stderr: one line, exit status 1, no traceback."""
        done = self(*arguments, exits=1)
        assert done.stdout == "" and done.stderr.count("\n") == 1
        assert done.stderr.startswith("leasework: ")
        return done.stderr


@pytest.fixture
def bare(dsn, monkeypatch) -> Cli:
    monkeypatch.delenv("LEASEWORK_SCHEMA", raising=False)
    return Cli(dsn)


@pytest.fixture
def cli(bare) -> Cli:
    bare("schema", "apply")
    return bare


def define(app: App) -> Any:
    @app.every(seconds=WEEK_SECONDS, anchor=HALF_A_WEEK_AWAY, name="weekly")
    @app.task(name="shop.mail")
    async def mail(to: str = "") -> str:
        return to

    return mail


def enqueue(dsn: str, count: int, **options: Any) -> list[str]:
    async def work() -> list[str]:
        app = App(dsn=dsn, name="shop")
        mail = define(app)
        try:
            jobs = await app.enqueue_many(
                [mail.using(**options).job(to=f"u{i}") for i in range(count)]
            )
            return [str(job.id) for job in jobs]
        finally:
            await app.close()

    return asyncio.run(work())


def take_part(dsn: str, look: Any) -> Any:
    """The answer of ``look()``, called in a thread while a node of this process lives and leads."""

    async def work() -> Any:
        app = App(dsn=dsn, name="shop")
        define(app)
        try:
            async with app.node() as node:
                inspector = await app.inspect()
                await until_async(node.leads)
                await until_async(inspector.schedules)
                return await asyncio.to_thread(look)
        finally:
            await app.close()

    return asyncio.run(work())


# -- schema ----------------------------------------------------------------------------------------
def test_schema_apply_verify_and_sql(bare):
    first = bare("schema", "apply")
    assert "Applied 0001_initial." in first.stdout and "applying 0001_initial …" in first.stderr
    again = bare("schema", "apply")
    assert again.stdout == "Nothing to do: the schema is up to date.\n"
    assert "The schema is correct" in bare("schema", "verify").stdout
    assert bare.json("schema", "verify") == {"ok": True, "differences": []}


def test_schema_verify_names_every_difference(cli):
    cli.sql("alter table leasework.job drop column progress_note cascade")
    cli.sql("create table leasework.mine ()")
    cli.sql("create index on leasework.event (kind)")
    document = cli.json("schema", "verify", exits=1)
    assert document["ok"] is False
    text = "\n".join(document["differences"])
    assert "missing: column job.progress_note" in text
    assert "event_kind_idx" in text and "unexpected" in text
    assert "progress_note" in cli("schema", "verify", exits=1).stdout


def test_the_printed_sql_makes_the_schema(bare):
    text = bare("schema", "sql").stdout
    bare.sql(text)
    assert "Nothing to do" in bare("schema", "apply").stdout
    bare("schema", "verify")


def test_several_processes_apply_the_schema_at_once(bare):
    command = [sys.executable, "-m", "leasework", "schema", "apply", "--dsn", bare.dsn]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0] * 3, answers
    assert sum("Applied 0001_initial." in out for out, _ in answers) == 1
    bare("schema", "verify")


def test_another_schema_name_is_another_world(cli):
    assert "Applied" in cli("schema", "apply", "--schema", "other").stdout
    cli("schema", "--schema", "other", "verify")
    enqueue(cli.dsn, 1)
    assert len(cli.json("jobs")) == 1 and cli.json("jobs", "--schema", "other") == []


# -- a database that is not right ------------------------------------------------------------------
READING = ("jobs", "schedules", "leaders", "locks", "nodes", "events")


def test_without_a_schema_every_verb_says_what_to_run(bare):
    for verb in READING:
        assert "Run: leasework schema apply" in bare.refused(verb)
    assert "Run: leasework schema apply" in bare.refused("schema", "verify")
    assert "Run: leasework schema apply" in bare("status", exits=1).stdout
    (problem,) = bare.json("status", exits=1)["problems"]
    assert problem["kind"] == "schema_missing"


def test_a_schema_of_a_newer_version_is_refused_also_by_apply(cli):
    cli.sql(
        "insert into leasework.migration (number, name, min_known) values (9999, 'future', 9999)"
    )
    for verb in (*READING, "schema apply", "schema verify"):
        said = cli.refused(*verb.split())
        assert "knows migration 9999" in said and "Upgrade leasework" in said
    assert cli.json("status", exits=1)["problems"][0]["kind"] == "schema_ahead"


def test_a_newer_schema_that_suits_this_version_is_fine(cli):
    cli.sql("insert into leasework.migration (number, name, min_known) values (9999, 'future', 1)")
    assert cli.json("jobs") == []
    assert "Nothing to do" in cli("schema", "apply").stdout


def test_a_schema_that_is_too_old_is_refused(cli):
    cli.sql("update leasework.migration set number = -1")
    for verb in READING:
        assert "Run: leasework schema apply" in cli.refused(verb)
    assert cli.json("status", exits=1)["problems"][0]["kind"] == "schema_behind"
    document = cli.json("schema", "verify", exits=1)
    assert "missing: migration 0001_initial" in document["differences"]


def test_a_read_only_server_is_named(direct_dsn):
    cli = Cli(direct_dsn)  # a pooler's old connections would not know of it
    cli("schema", "apply")
    cli.sql(f"alter database {cli.sql('select current_database()')[0][0]} "
            "set default_transaction_read_only = on")  # fmt: skip
    for verb in (*READING, "schema apply"):
        assert "default_transaction_read_only" in cli.refused(*verb.split())
    assert cli.json("status", exits=1)["problems"][0]["kind"] == "database_read_only"


def test_wrong_addresses_are_told_apart(direct_dsn):
    cli = Cli(make_conninfo(direct_dsn, dbname="no_such_database"))
    assert "no_such_database" in cli.refused("jobs")
    cli = Cli(make_conninfo(direct_dsn, user="no_such_role"))
    assert "no_such_role" in cli.refused("jobs")
    cli = Cli(make_conninfo(host="127.0.0.1", port=1, dbname="x", password="hunter2"))
    assert "the database did not answer" in cli.refused("jobs")
    assert "hunter2" not in cli("status", exits=1).output
    assert cli.json("status", exits=1)["problems"][0]["kind"] == "database_away"


def test_a_wrong_password_is_said_and_not_printed(own_postgres):
    server = own_postgres()
    cli = Cli(server.dsn)
    cli.sql("create role shop login password 'right-one'")
    hba = server.data_dir / "pgdata" / "pg_hba.conf"
    hba.write_text("local all shop scram-sha-256\n" + hba.read_text())
    cli.sql("select pg_reload_conf()")
    wrong = Cli(make_conninfo(server.dsn, user="shop", password="hunter2"))
    for arguments in (["jobs"], ["schema", "apply"]):
        said = wrong.refused(*arguments)
        assert "password" in said and "hunter2" not in said
    assert "hunter2" not in wrong("status", exits=1).output
    right = Cli(make_conninfo(server.dsn, user="shop", password="right-one"))
    assert "leasework schema apply" in right.refused("jobs")
    assert "permission denied" in right.refused("schema", "apply")


# -- jobs ------------------------------------------------------------------------------------------
def test_jobs_are_listed_shown_and_chosen(cli):
    ids = enqueue(cli.dsn, 3)
    (later,) = enqueue(cli.dsn, 1, run_in=3600, queue="slow")
    rows = cli.json("jobs")
    assert {row["id"] for row in rows} == {*ids, later}
    assert {
        "id",
        "task_name",
        "queue",
        "payload",
        "state",
        "priority",
        "created_at",
        "scheduled_for",
        "attempt",
        "max_attempts",
        "worker_id",
        "last_error",
        "reason",
        "traceback",
        "result",
    } <= set(rows[0])
    assert len(cli.json("jobs", "--limit", "2")) == 2
    assert [row["id"] for row in cli.json("jobs", "--queue", "slow")] == [later]
    assert [row["id"] for row in cli.json("jobs", "--state", "scheduled")] == [later]
    assert cli.json("jobs", "--task", "shop.other") == []
    assert cli("jobs", "--task", "shop.other").stdout == "No jobs.\n"
    table = cli("jobs").stdout.splitlines()
    assert table[0].split()[:4] == ["ID", "TASK", "QUEUE", "STATE"] and len(table) == 5
    assert cli.json("jobs", "show", ids[0])["payload"] == {"to": "u0"}
    assert "shop.mail" in cli("jobs", "show", ids[0]).stdout


def test_a_waiting_job_is_cancelled_once_and_runs_again_on_retry(cli):
    (job,) = enqueue(cli.dsn, 1)
    assert cli("jobs", "cancel", job, "--reason", "no need").stdout == f"Job {job} was cancelled.\n"
    shown = cli.json("jobs", "show", job)
    assert shown["state"] == "cancelled" and "no need" in shown["reason"]
    assert "has already finished" in cli.refused("jobs", "cancel", job)
    assert "was queued to run now" in cli("jobs", "retry", job).stdout
    assert cli.json("jobs", "show", job)["state"] == "available"


@pytest.mark.parametrize("verb", ["show", "cancel", "retry"])
def test_a_job_that_is_not_there_is_said(cli, verb):
    assert "no such job" in cli.refused("jobs", verb, str(UUID(int=1)))
    assert "a job's id is a UUID" in cli.refused("jobs", verb, "17")


def test_hostile_text_of_a_job_reaches_no_terminal(cli):
    cli.sql(
        r"""select leasework.enqueue('{"task": "a\u001b[2Jb", "queue": "q\u001b[2J\u009b",
        "payload": {"x": "\u001b[31m", "y": "\u009b2J\u202e é"}}')"""
    )
    (row,) = cli.json("jobs")
    assert row["task_name"] == "a\x1b[2Jb" and row["payload"]["y"] == "\x9b2J\u202e é"
    for done in (cli("jobs"), cli("jobs", "show", row["id"])):
        assert "\x1b" not in done.stdout and r"a\x1b[2Jb" in done.stdout
    shown = cli("jobs", "--json").stdout
    assert "\x9b" not in shown and "\u202e" not in shown and "é" in shown
    refused = cli.refused("queues", "pause", "nosuch")
    assert "\x1b" not in refused and r"q\x1b[2J\x9b" in refused, "an error lists what is known"


# -- a living application --------------------------------------------------------------------------
def test_everything_about_a_living_node_can_be_read(cli):
    def look() -> None:
        (node,) = cli.json("nodes")
        assert node["app"] == "shop" and node["queues"] == {"default": 100}
        assert node["pid"] == os.getpid()
        (leader,) = cli.json("leaders")
        assert leader["name"] == "shop" and leader["holder"] == node["worker_id"]
        (term,) = cli.json("leaders", "--terms")
        assert term["term"] == leader["term"] and term["holder"] == node["worker_id"]
        assert (term["ended"], term["ended_at"]) == ("held", None) and term["seconds"] >= 0
        (schedule,) = cli.json("schedules")
        assert schedule["name"] == "weekly" and schedule == cli.json("schedules")[0]
        assert cli.json("schedules", "ticks") == []
        assert "weekly" in cli("schedules").stdout and node["worker_id"] in cli("nodes").stdout
        assert node["worker_id"] in cli("leaders").stdout
        status = cli.json("status")
        assert status["ok"] is True and status["problems"] == [] and status["notes"] == []
        assert status["nodes"] == {"live": 1, "all": 1, "by_app": {"shop": 1}}
        assert "All is well" in cli("status").stdout
        assert cli("schedules", "pause", "weekly").stdout == "Schedule weekly of shop is paused.\n"
        status = cli.json("status")
        assert status["ok"] is True and status["notes"][0]["kind"] == "schedule_paused"
        assert "All is well\n1 note\n- Schedule 'weekly'" in cli("status").stdout
        assert cli.json("schedules")[0]["paused"] is True
        assert "is resumed" in cli("schedules", "resume", "weekly", "--app", "shop").stdout
        assert cli.json("schedules")[0]["paused"] is False

    take_part(cli.dsn, look)
    kinds = [event["kind"] for event in cli.json("events")]
    assert {"node_started", "lease_acquired", "lease_resigned"} <= set(kinds)
    assert kinds[-1] == "node_stopped"
    (term,) = cli.json("leaders", "--terms")
    assert term["ended"].startswith("resigned") and term["ended_at"]
    assert "resigned" in cli("leaders", "--terms").stdout
    (resigned,) = cli.json("events", "--kind", "lease_resigned")
    assert resigned["fields"]["name"] == "shop"
    assert len(cli.json("events", "--limit", "1")) == 1
    assert "lease_resigned" in cli("events").stdout


def test_a_schedule_that_is_not_there_gets_the_nearest_right_name(cli):
    assert "Known: none" in cli.refused("schedules", "pause", "weekly")
    take_part(cli.dsn, lambda: None)
    assert "Did you mean 'weekly'?" in cli.refused("schedules", "pause", "weekli")
    assert "in the application 'x'" in cli.refused("schedules", "pause", "weekly", "--app", "x")


def test_a_schedule_name_of_two_applications_asks_which(cli):
    take_part(cli.dsn, lambda: None)
    cli.sql(
        "insert into leasework.schedule (app, name, spec, described, task_name, job, missed, "
        "grace_seconds, release) select 'other', name, spec, described, task_name, job, missed, "
        "grace_seconds, release from leasework.schedule"
    )
    assert "other, shop" in cli.refused("schedules", "pause", "weekly")
    assert "of other is paused" in cli("schedules", "pause", "weekly", "--app", "other").stdout


def test_status_says_what_is_wrong_and_exits_1(cli):
    enqueue(cli.dsn, 1, queue="mail")
    cli.sql("update leasework.job set run_at = now() - interval '5 minutes'")
    take_part(cli.dsn, lambda: None)
    cli.sql("update leasework.schedule set next_at = now() - interval '3 days'")
    status = cli.json("status", exits=1)
    assert status["ok"] is False
    [cause] = status["problems"]
    assert cause["kind"] == "no_live_node"
    assert {one["kind"] for one in cause["symptoms"]} == {"schedule_silent", "queue_unworked"}
    shown = cli("status", exits=1).stdout
    assert "1 problem" in shown and "  - Schedule" in shown
    assert "is silent: it was due 3 d ago." in shown
    assert (status["jobs"]["available"], status["jobs"]["more"]) == (1, False)
