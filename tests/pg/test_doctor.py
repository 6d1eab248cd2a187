"""`leasework doctor` on real servers: it reports what status reports, and its checks of the
set-up, each with its fix."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql
from psycopg.conninfo import make_conninfo

from leasework import App
from leasework.cli.root import root
from leasework.errors import JobFailed
from tests.support.pgbouncer import PgBouncer

REST = ("no_live_node",)
"""What status reports while no process runs."""


def run(dsn: str, *command: str) -> dict[str, Any]:
    environ = {"LEASEWORK_DSN": dsn, "NO_COLOR": "1"}
    done = CliRunner().invoke(root, [*command, "--json"], prog_name="leasework", env=environ)
    assert done.stdout.startswith("{"), f"{done.output}\n{done.exception!r}"
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["ok"] is (done.exit_code == 0) is (told["problems"] == [])
    for problem in told["problems"]:
        assert problem["do"], "what is wrong comes with its fix"
    return told


def wrong(dsn: str, *options: str) -> dict[str, dict[str, str]]:
    """The problems that the doctor finds beside those of an application at rest."""
    problems = {problem["kind"]: problem for problem in run(dsn, "doctor", *options)["problems"]}
    return {kind: problem for kind, problem in problems.items() if kind not in REST}


def noted(dsn: str) -> set[str]:
    return {note["kind"] for note in run(dsn, "doctor")["notes"]}


def typed(finding: dict[str, str]) -> bytes:
    """The SQL that a finding says to type."""
    assert finding["do"].startswith("In psql: ")
    return finding["do"].removeprefix("In psql: ").encode()


@contextmanager
def login(dsn: str, name: str, options: str = "") -> Iterator[str]:
    """A DSN for a role of its own in that database."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f"create role {name} login {options}".encode())
        try:
            yield make_conninfo(dsn, user=name)
        finally:
            admin.execute(f"drop owned by {name}".encode())
            admin.execute(f"drop role {name}".encode())


@asynccontextmanager
async def working(dsn: str) -> AsyncIterator[App]:
    app = App(dsn, name="one")
    try:
        async with app.node(queues={"default": 1}):
            yield app
    finally:
        await app.close()


# -- the same report as status ---------------------------------------------------------------------
async def test_a_sound_server_and_application_have_no_problem(migrated):
    async with working(migrated):
        told = await asyncio.to_thread(run, migrated, "doctor")
        assert told["ok"] and told["notes"] == []
        assert told["nodes"]["live"] == 1 and told["setup"]["denied"] == []


async def test_it_reports_every_problem_and_note_of_status_and_exits_with_1(migrated):
    app = App(migrated, name="one")

    @app.task(name="charge")
    async def charge() -> None: ...

    @app.task(name="fails", queue="other", max_attempts=1)
    async def fails() -> None:
        raise RuntimeError("no")

    @app.every(seconds=86400, name="nightly")
    async def nightly() -> None: ...

    async with app.node(queues={"other": 1}):
        await app.enqueue(charge.job())
        with pytest.raises(JobFailed):
            await (await app.enqueue(fails.job())).wait(60)
        with psycopg.connect(migrated, autocommit=True) as admin:
            admin.execute(
                "insert into leasework.node (id, token, lease_seconds, app, release, host, pid, "
                "version) values (gen_random_uuid(), 1, 20, 'two', '', 'h', 1, '0.0.1')"
            )
        await (await app.operator("ann", "cli")).pause("nightly", "one")
        status = await asyncio.to_thread(run, migrated, "status")
        told = await asyncio.to_thread(run, migrated, "doctor")
        kinds = {"queue_unworked", "jobs_discarded", "versions_differ"}
        assert {problem["kind"] for problem in status["problems"]} >= kinds
        assert [p["kind"] for p in status["notes"]] == ["schedule_paused"]
        for part in ("problems", "notes"):
            assert {p["kind"] for p in told[part]} == {p["kind"] for p in status[part]}
        assert not told["ok"] and status.keys() <= told.keys()
        assert not all(finding.info for finding in await app.diagnose())
    await app.close()


def test_it_says_the_same_to_people_and_changes_nothing(migrated):
    with psycopg.connect(migrated) as reader:
        relations = "select count(*) from pg_class"
        before = reader.execute(relations).fetchone()
        reader.rollback()
        environ = {"LEASEWORK_DSN": migrated, "NO_COLOR": "1"}
        done = CliRunner().invoke(root, ["doctor"], env=environ)
        status = CliRunner().invoke(root, ["status"], env=environ)
        assert done.exit_code == status.exit_code == 1, done.output
        assert "PostgreSQL 1" in done.output
        assert set(status.output.splitlines()) <= set(done.output.splitlines())
        assert reader.execute(relations).fetchone() == before


def test_a_wrong_option_is_wrong_usage(migrated):
    arguments = ["doctor", "--role", "king"]
    done = CliRunner().invoke(root, arguments, env={"LEASEWORK_DSN": migrated})
    assert done.exit_code == 2


# -- when the application cannot be read -----------------------------------------------------------
def test_a_server_that_is_not_there_is_one_problem(tmp_path):
    assert list(wrong(f"host={tmp_path} dbname=x user=y")) == ["database_away"]


def test_a_database_without_the_schema_is_told_to_apply_it(direct_dsn):
    found = wrong(direct_dsn)
    assert list(found) == ["schema_missing"]
    assert found["schema_missing"]["do"] == "Run: leasework schema apply"


def test_a_schema_that_is_behind_is_told_to_apply_the_rest(migrated):
    with psycopg.connect(migrated, autocommit=True) as admin:
        admin.execute("update leasework.migration set number = -1")
    found = wrong(migrated)
    assert list(found) == ["schema_behind"]
    assert found["schema_behind"]["do"] == "Run: leasework schema apply"


def test_a_primary_whose_sessions_are_read_only_is_no_replica(migrated):
    with psycopg.connect(migrated, autocommit=True) as admin:
        name = sql.Identifier(admin.info.dbname)
        change = sql.SQL("alter database {} set default_transaction_read_only = on").format(name)
        admin.execute(change)
    found = wrong(migrated)
    assert list(found) == ["database_read_only"]
    assert "no replica" in found["database_read_only"]["sentence"]
    assert "Reset default_transaction_read_only" in found["database_read_only"]["do"]


def test_a_login_without_privileges_is_told_which_role_it_needs(migrated):
    with login(migrated, "nobody_much") as dsn:
        found = wrong(dsn)
        assert "leasework_worker" in found["privileges"]["do"]
        assert "nobody_much" in found["privileges"]["sentence"]
        assert "usage on the schema" in json.dumps(run(dsn, "doctor")["setup"]["denied"])
        assert found["database_refuses"], "as status says"
        with psycopg.connect(migrated, autocommit=True) as admin:
            admin.execute("grant usage on schema leasework to nobody_much")
            admin.execute("grant select on all tables in schema leasework to nobody_much")
            admin.execute("grant select on all sequences in schema leasework to nobody_much")
        found = wrong(dsn)
        assert list(found) == ["privileges"]
        assert "insert on node" in found["privileges"]["sentence"]
        assert wrong(dsn, "--role", "observer") == {}


def test_a_login_that_only_enqueues_is_checked_for_that(migrated):
    with login(migrated, "sender") as dsn:
        assert list(wrong(dsn, "--role", "enqueue")) == ["privileges"]
        with psycopg.connect(migrated, autocommit=True) as admin:
            admin.execute("grant usage on schema leasework to sender")
            admin.execute("grant select on leasework.migration to sender")
            admin.execute("grant execute on all functions in schema leasework to sender")
        told = run(dsn, "doctor", "--role", "enqueue")
        assert told["ok"]
        assert "may not read it" in told["notes"][0]["sentence"]
        assert "database_refuses" in wrong(dsn), "a worker must be able to"


# -- the checks of the set-up ----------------------------------------------------------------------
def test_a_schema_that_was_changed_by_hand_is_told(migrated):
    with psycopg.connect(migrated, autocommit=True) as admin:
        admin.execute("drop index leasework.job_waiting")
    found = wrong(migrated)
    assert list(found) == ["schema_differs"]
    assert "job_waiting" in found["schema_differs"]["sentence"]


def test_behind_a_pooler_in_transaction_mode_nothing_is_wrong_and_no_advice_does_harm(
    migrated, pgbouncer
):
    told = run(pgbouncer.dsn, "doctor")
    assert {problem["kind"] for problem in told["problems"]} == set(REST)
    assert "pooler" in {note["kind"] for note in told["notes"]}
    # whatever it tells people to type here would change the login that the application shares
    assert "alter role" not in json.dumps(told)


def test_commits_that_are_not_durable_are_told_and_the_fix_mends_it(migrated):
    with (
        login(migrated, "hasty", "superuser") as dsn,
        psycopg.connect(migrated, autocommit=True) as admin,
    ):
        admin.execute("alter role hasty set synchronous_commit = off")
        found = wrong(dsn)
        assert list(found) == ["server_settings"]
        admin.execute(typed(found["server_settings"]))
        assert wrong(dsn) == {}


def test_an_isolation_that_only_the_role_can_change_is_told(migrated, pgbouncer):
    with psycopg.connect(migrated, autocommit=True) as admin:
        admin.execute("alter role current_user set default_transaction_isolation = serializable")
        try:
            assert wrong(migrated) == {}, "sessions of our own set theirs"
            pgbouncer.admin("reconnect")
            told = wrong(pgbouncer.dsn)["database_refuses"]
            assert "set default_transaction_isolation = 'read committed'" in told["do"].lower()
        finally:
            admin.execute("alter role current_user reset all")


def test_who_pins_xmin_is_named_and_the_fix_ends_it(migrated, monkeypatch):
    with psycopg.connect(migrated, application_name="a long report") as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select 1 from leasework.job")
        with monkeypatch.context() as patch:
            patch.setenv("LEASEWORK_PIN_SECONDS", "0")
            found = wrong(migrated)["xmin_pinned"]
        assert "a long report" in found["sentence"]
        with psycopg.connect(migrated, autocommit=True) as admin:
            admin.execute(found["do"].removeprefix("End it: ").encode())
        with pytest.raises(psycopg.OperationalError):
            holder.execute("select 1")
    assert wrong(migrated) == {}


def test_a_connection_limit_that_is_nearly_reached_is_told(migrated):
    with login(migrated, "crowded", "superuser connection limit 5") as dsn:
        others = [psycopg.connect(dsn) for _ in range(3)]
        try:
            assert "connection limit 10" in wrong(dsn)["connections"]["do"]
        finally:
            for other in others:
                other.close()


def test_timeouts_of_a_role_that_would_cut_leasework_off_are_told(migrated):
    with (
        login(migrated, "impatient", "superuser") as dsn,
        psycopg.connect(migrated, autocommit=True) as admin,
    ):
        admin.execute("alter role impatient set idle_session_timeout = '1min'")
        admin.execute("alter role impatient set statement_timeout = '1900ms'")
        admin.execute("alter role impatient set idle_in_transaction_session_timeout = '2s'")
        admin.execute("alter role impatient set client_connection_check_interval = '500ms'")
        assert wrong(dsn) == {}, "sessions of our own set theirs"
        bouncer = PgBouncer(dsn)
        try:
            found = wrong(bouncer.dsn)
            assert "statement_timeout" in found["server_settings"]["do"]
            admin.execute(typed(found["server_settings"]))
            bouncer.admin("reconnect")
            assert wrong(bouncer.dsn) == {}
        finally:
            bouncer.close()


@pytest.mark.parametrize(
    ("timeline", "seen", "added", "number", "repeats"),
    [
        (1, 1, 0, 8, False),
        (2, 1, 0, 1, False),
        (1, 3, 0, 1, False),
        ("null", 1, 1, 1, False),
        (1, 1, 0, 1, True),
        ("null", 1, 0, 7, True),
    ],
)
def test_tokens_that_would_come_twice_are_told_and_those_that_grow_over_a_move_are_sound(
    migrated, timeline, seen, added, number, repeats
):
    highest = (2 << 32) + 9 if seen == 3 else 7
    with psycopg.connect(migrated, autocommit=True) as admin:
        admin.execute(
            "create or replace function leasework.server_timeline() returns bigint language sql "
            f"as 'select {timeline}::bigint'".encode()
        )
        admin.execute("update leasework.incarnation set seen = %s, added = %s", [seen, added])
        admin.execute("select setval('leasework.token_seq', %s, false)", [number])
        admin.execute(
            "insert into leasework.node (id, token, lease_seconds, app, release, host, pid, "
            "version) values (gen_random_uuid(), %s, 20, 'one', '', 'h', 1, '0.0.1')",
            [highest],
        )
    assert ("tokens" in wrong(migrated)) is repeats
    assert ("tokens" in noted(migrated)) is (timeline == "null")
