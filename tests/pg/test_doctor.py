"""`leasework doctor` on real servers: all well, and each thing that can be wrong, with its fix."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql
from psycopg.conninfo import make_conninfo

from leasework import App
from leasework.cli.root import root
from tests.support.pgbouncer import PgBouncer

Doctor = Callable[..., dict[str, Any]]


def examine(dsn: str, *arguments: str, exits: int, seconds: float = 0.2) -> dict[str, Any]:
    command = ("doctor", "--json", "--seconds", str(seconds), *arguments)
    environ = {"LEASEWORK_DSN": dsn, "NO_COLOR": "1"}
    done = CliRunner().invoke(root, command, prog_name="leasework", env=environ)
    assert done.exit_code == exits, f"{done.output}\n{done.exception!r}"
    assert done.stdout.startswith("{"), f"{done.output}\n{done.exception!r}"
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["ok"] is (exits == 0)
    for finding in told["findings"]:
        assert finding["do"] or finding["level"] != "wrong", "what is wrong comes with its fix"
    return told


def wrong(told: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {f["kind"]: f for f in told["findings"] if f["level"] == "wrong"}


def typed(finding: dict[str, str]) -> bytes:
    """The SQL that a finding says to type."""
    assert finding["do"].startswith("In psql: ")
    return finding["do"].removeprefix("In psql: ").encode()


def check(told: dict[str, Any], name: str) -> dict[str, str]:
    return next(f for f in told["findings"] if f["kind"] == name)


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


def test_a_sound_server_is_found_well(migrated):
    told = examine(migrated, exits=0)
    levels = {f["kind"]: f["level"] for f in told["findings"]}
    named = (
        "server schema pooler listen timeline synchronous_commit timeouts keepalives clock "
        "connections autovacuum recover_within"
    )
    for name in named.split():
        assert levels[name] == "ok", (name, told["findings"])
    assert told["intervals"]["lease"] == 10.0 and told["intervals"]["renew"] == 2.0
    assert told["pooler"] == "none" and told["listen_seconds"] > 0
    assert told["round_trip_seconds"]["most"] > 0 and told["recommended_recover_within"] == 15
    assert told["clock"]["jump_seconds"] == 0


def test_it_says_the_same_to_people_and_changes_nothing(migrated):
    with psycopg.connect(migrated) as reader:
        relations = "select count(*) from pg_class"
        before = reader.execute(relations).fetchone()
        reader.rollback()
        done = CliRunner().invoke(
            root, ["doctor", "--seconds", "0.2"], env={"LEASEWORK_DSN": migrated, "NO_COLOR": "1"}
        )
        assert done.exit_code == 0, done.output
        assert "Nothing to fix. " in done.output and "a candidate waits" in done.output
        assert reader.execute(relations).fetchone() == before


def test_a_database_without_the_schema_is_told_to_apply_it(direct_dsn):
    found = wrong(examine(direct_dsn, exits=1))
    assert found["schema"]["do"] == "Run: leasework schema apply" and len(found) == 1


def test_a_schema_that_was_changed_by_hand_is_told(migrated):
    with psycopg.connect(migrated, autocommit=True) as admin:
        admin.execute("drop index leasework.job_waiting")
    found = wrong(examine(migrated, exits=1))
    assert "job_waiting" in found["schema"]["sentence"]


def test_a_server_that_is_not_there_is_one_finding(tmp_path):
    told = examine(f"host={tmp_path} dbname=x user=y", exits=1)
    assert [f["kind"] for f in told["findings"]] == ["database_away"]


def test_a_wrong_option_is_wrong_usage(migrated):
    arguments = ["doctor", "--role", "king"]
    done = CliRunner().invoke(root, arguments, env={"LEASEWORK_DSN": migrated})
    assert done.exit_code == 2


def test_behind_a_pooler_in_transaction_mode_nothing_is_wrong_and_no_advice_does_harm(
    migrated, pgbouncer
):
    told = examine(pgbouncer.dsn, exits=0)
    assert told["pooler"] == "transaction" and check(told, "pooler")["level"] == "note"
    assert told["listen_seconds"] is None
    limits = check(told, "timeouts")
    assert limits["level"] == "note" and "a login of its own" in limits["do"]
    # whatever it tells people to type here would change the login that the application shares
    assert not [f for f in told["findings"] if "alter role" in f["do"]]


def test_a_login_without_privileges_is_told_which_role_it_needs(migrated):
    with login(migrated, "nobody_much") as dsn:
        found = wrong(examine(dsn, exits=1))
        assert "leasework_worker" in found["privileges"]["do"]
        assert "nobody_much" in found["privileges"]["sentence"]
        with psycopg.connect(migrated, autocommit=True) as admin:
            admin.execute("grant usage on schema leasework to nobody_much")
            admin.execute("grant select on all tables in schema leasework to nobody_much")
            admin.execute("grant select on all sequences in schema leasework to nobody_much")
        found = wrong(examine(dsn, exits=1))
        assert "insert on node" in found["privileges"]["sentence"]
        told = examine(dsn, "--role", "observer", exits=0)
        assert check(told, "privileges")["level"] == "ok"
        assert check(told, "schema")["level"] == "ok"


def test_a_primary_whose_sessions_are_read_only_is_no_replica(migrated):
    with psycopg.connect(migrated, autocommit=True) as admin:
        name = sql.Identifier(admin.info.dbname)
        change = sql.SQL("alter database {} set default_transaction_read_only = on").format(name)
        admin.execute(change)
    found = wrong(examine(migrated, exits=1))
    assert "no replica" in found["server"]["sentence"]
    assert "Reset default_transaction_read_only" in found["server"]["do"]


def test_commits_that_are_not_durable_are_told_and_the_fix_mends_it(migrated):
    with (
        login(migrated, "hasty", "superuser") as dsn,
        psycopg.connect(migrated, autocommit=True) as admin,
    ):
        admin.execute("alter role hasty set synchronous_commit = off")
        found = wrong(examine(dsn, exits=1))
        assert list(found) == ["synchronous_commit"]
        admin.execute(typed(found["synchronous_commit"]))
        assert check(examine(dsn, exits=0), "synchronous_commit")["level"] == "ok"


def test_an_isolation_that_only_the_role_can_change_is_told_and_the_fix_mends_it(
    migrated, pgbouncer
):
    with psycopg.connect(migrated, autocommit=True) as admin:
        admin.execute("alter role current_user set default_transaction_isolation = serializable")
        try:
            pgbouncer.admin("reconnect")
            found = wrong(examine(pgbouncer.dsn, exits=1))
            admin.execute(typed(found["isolation"]))
            pgbouncer.admin("reconnect")
            assert wrong(examine(pgbouncer.dsn, exits=0)) == {}
        finally:
            admin.execute("alter role current_user reset all")


def test_who_pins_xmin_is_named_and_the_fix_ends_it(migrated, monkeypatch):
    with psycopg.connect(migrated, application_name="a long report") as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select 1 from leasework.job")
        with monkeypatch.context() as patch:
            patch.setenv("LEASEWORK_PIN_SECONDS", "0")
            found = wrong(examine(migrated, exits=1))["xmin_pinned"]
        assert "a long report" in found["sentence"]
        with psycopg.connect(migrated, autocommit=True) as admin:
            admin.execute(found["do"].removeprefix("End it: ").encode())
        with pytest.raises(psycopg.OperationalError):
            holder.execute("select 1")
    assert wrong(examine(migrated, exits=0)) == {}


def test_a_connection_limit_that_is_nearly_reached_is_told(migrated):
    with login(migrated, "crowded", "superuser connection limit 5") as dsn:
        others = [psycopg.connect(dsn) for _ in range(3)]
        try:
            found = wrong(examine(dsn, exits=1))
            assert "connection limit 10" in found["connections"]["do"]
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
        examine(dsn, exits=0)  # sessions of our own set theirs
        bouncer = PgBouncer(dsn)
        try:
            found = wrong(examine(bouncer.dsn, exits=1))
            assert "statement_timeout" in found["timeouts"]["do"]
            admin.execute(typed(found["timeouts"]))
            bouncer.admin("reconnect")
            examine(bouncer.dsn, exits=0)
        finally:
            bouncer.close()


async def test_nodes_of_other_versions_and_leases_are_told(migrated):
    app = App(migrated, name="one")
    async with app.node(queues={"default": 1}):
        with psycopg.connect(migrated, autocommit=True) as admin:
            admin.execute(
                "insert into leasework.node (id, token, lease_seconds, app, release, host, pid, "
                "version) values (gen_random_uuid(), 1, 20, 'two', '', 'h', 1, '0.0.1')"
            )
        told = await asyncio.to_thread(examine, migrated, exits=1, seconds=3)
        found = wrong(told)
        assert "0.0.1" in found["versions_differ"]["sentence"]
        assert "10 s, 20 s" in found["recover_within"]["sentence"]
        assert told["renewal_gap_seconds"] > 0
    await app.close()


async def test_the_recover_within_of_the_nodes_is_judged_unless_another_one_is_given(migrated):
    app = App(migrated, name="one", recover_within=60)
    async with app.node(queues={"default": 1}):
        told = await asyncio.to_thread(examine, migrated, exits=0)
        assert told["intervals"]["recover_within"] == 60
        assert "recover_within is 60 s" in check(told, "recover_within")["sentence"]
        settings = {"LEASEWORK_DSN": migrated, "LEASEWORK_RECOVER_WITHIN": "9"}
        words = ["doctor", "--json", "--seconds", "0.2"]
        done = await asyncio.to_thread(CliRunner().invoke, root, words, env=settings)
        assert json.loads(done.stdout)["intervals"]["recover_within"] == 9
    await app.close()
