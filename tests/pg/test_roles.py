"""`leasework schema sql --roles`: a login in each role, what it does and what it may not do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from leasework import App, Deadline, Rate
from leasework.cli.root import root
from leasework.config import Settings
from leasework.errors import PermissionDenied, Unavailable
from leasework.pg.schema import migrate, roles
from leasework.store.setup import examine
from leasework.web import Login, dashboard
from tests.support.wait import until_async

NAMES = ("enqueue", "worker", "operator", "observer", "admin")


@dataclass
class Logins:
    """``dsn`` is the superuser's; the others are named after their role."""

    dsn: str
    prefix: str = "t_"

    def __getitem__(self, role: str) -> str:
        return make_conninfo(self.dsn, user=self.prefix + role)

    def sql(self, text: str, role: str = "") -> list[tuple[Any, ...]]:
        with psycopg.connect(self[role] if role else self.dsn, autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def refused(self, role: str, text: str) -> None:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            self.sql(text, role)

    def cli(self, role: str, *arguments: str, exits: int = 0) -> str:
        environ = {"LEASEWORK_DSN": self[role] if role else self.dsn, "NO_COLOR": "1"}
        done = CliRunner().invoke(root, arguments, prog_name="leasework", env=environ)
        assert done.exit_code == exits, f"{done.output}\n{done.exception!r}"
        return done.stdout


@pytest.fixture
def logins(migrated: str) -> Iterator[Logins]:
    """The script, run as it is printed, and a login in each role."""
    made = Logins(migrated)
    made.sql(made.cli("", "schema", "sql", "--roles"))
    for name in NAMES:
        made.sql(f"create role t_{name} login in role leasework_{name}")
    try:
        yield made
    finally:
        for name in NAMES:
            for role in (f"t_{name}", f"leasework_{name}"):
                made.sql(f"drop owned by {role} cascade")
                made.sql(f"drop role {role}")


def test_it_may_be_run_again_and_gives_back_what_was_granted_beside_it(logins):
    logins.sql("grant delete on leasework.job to leasework_observer")
    logins.sql("delete from leasework.job where false", "observer")
    logins.sql(logins.cli("", "schema", "sql", "--roles"))
    logins.refused("observer", "delete from leasework.job where false")
    logins.cli("", "schema", "verify")


def test_a_function_of_another_login_does_not_run_with_our_rights(logins):
    """Its arguments fit better than those of PostgreSQL's own, which takes any array."""
    logins.sql('select leasework.enqueue(\'{"task": "t"}\')')
    body = "begin raise exception 'run by %', current_user; end"
    logins.sql(
        "create function public.cardinality(text[]) returns integer language plpgsql "
        f"as $$ {body} $$"
    )
    try:
        for role in ("worker", "operator", "observer", "admin", ""):
            logins.cli(role, "jobs", "--where", "queue:default")
    finally:
        logins.sql("drop function public.cardinality(text[])")


def test_a_superuser_who_runs_what_is_printed_runs_nobody_elses_code(direct_dsn):
    """In a database that came from PostgreSQL 14, every login may create these in public."""
    raises = "language plpgsql as $$ begin raise exception 'run by %', current_user; end $$"
    with psycopg.connect(direct_dsn, autocommit=True) as connection:
        for made in (
            f"create function public.format(text, integer) returns text {raises}",
            f"create function public.differ(oid, regrole) returns boolean {raises}",
            "create operator public.<> (leftarg = oid, rightarg = regrole, function = differ)",
            migrate.script("printed"),
            roles.script("printed"),
            "drop schema printed cascade",
            *(f"drop owned by printed_{name}; drop role printed_{name}" for name in NAMES),
        ):
            connection.execute(made.encode())


def test_several_may_run_it_at_once(logins):
    script = logins.cli("", "schema", "sql", "--roles")
    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            list(threads.map(logins.sql, [script] * 4))


async def test_the_schema_may_be_named_with_a_word_of_sql(direct_dsn: str) -> None:
    made = Logins(direct_dsn)
    await migrate.apply(Settings(dsn=direct_dsn, schema="user"))
    try:
        made.sql(roles.script("user"))
        made.sql('create role "order" login in role user_worker')
        settings = Settings(dsn=make_conninfo(direct_dsn, user="order"), schema="user")
        app = App(settings.dsn, schema="user")
        async with app.node():
            pass
        await app.close()
        assert (await examine(settings, "worker", readable=True)).denied == []
        assert await migrate.verify(Settings(dsn=direct_dsn, schema="user")) == []
    finally:
        for role in ('"order"', *(f"user_{name}" for name in NAMES)):
            made.sql(f"drop owned by {role} cascade")
            made.sql(f"drop role {role}")


async def test_who_owns_the_schema_needs_no_right_to_create_one_and_can_verify_it(
    direct_dsn: str,
) -> None:
    with psycopg.connect(direct_dsn, autocommit=True) as admin:
        admin.execute("create role t_shop login")
        try:
            admin.execute("create schema leasework authorization t_shop")
            shop = Settings(dsn=make_conninfo(direct_dsn, user="t_shop"))
            assert await migrate.apply(shop)
            assert await migrate.verify(shop) == []
            database = conninfo_to_dict(direct_dsn)["dbname"]
            admin.execute(f"revoke temporary on database {database} from public".encode())
            with pytest.raises(PermissionDenied, match="grant temporary on database"):
                await migrate.verify(shop)
        finally:
            admin.execute("drop owned by t_shop cascade")
            admin.execute("drop role t_shop")


def test_it_does_not_wait_for_a_long_transaction_while_it_holds_the_tables_of_leases(
    migrated: str,
) -> None:
    script = CliRunner().invoke(root, ["schema", "sql", "--roles"], prog_name="leasework").output
    with psycopg.connect(migrated) as user, psycopg.connect(migrated, autocommit=True) as admin:
        user.execute("select 1 from leasework.job")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            admin.execute(script.encode())


async def test_a_process_without_a_connection_for_its_guard_gives_up_the_one_it_has(logins):
    logins.sql("alter role t_worker connection limit 1")
    app = App(logins["worker"], call_timeout=1.0, recover_within=9.0)
    with pytest.raises(Unavailable, match="could not register in time"):
        async with app.node():
            pass
    await app.close()
    with pytest.raises(Unavailable, match="could not register in time"):
        async with app.lock("nightly"):
            pass
    await app.close()
    logins.sql("alter role t_worker connection limit -1")
    async with app.node():
        pass
    await app.close()


def test_who_is_no_superuser_can_run_it_too(logins):
    logins.sql("create role t_maker login createrole")
    try:
        # a member of the owner, with the right to give the roles away
        logins.sql("grant leasework_admin to t_maker with admin option")
        for name in NAMES[:-1]:
            logins.sql(f"grant leasework_{name} to t_maker with admin option")
        script = logins.cli("", "schema", "sql", "--roles")
        with psycopg.connect(make_conninfo(logins.dsn, user="t_maker"), autocommit=True) as maker:
            notices: list[str] = []
            maker.add_notice_handler(lambda d: notices.append(str(d.message_primary)))
            maker.execute(script.encode())
        assert any("ask a superuser" in notice for notice in notices)
    finally:
        logins.sql("drop owned by t_maker cascade; drop role t_maker")


ACTED = (
    "insert into leasework.event (kind, level) values ('note', 'info'), ('person_acted', 'info')"
)
RECORDS = ("event", "attempt", "tick", "history")
TWO = (("attempt", "ended_at"), ("tick", "decided_at"))
FORBIDDEN = {
    "enqueue": [
        "select * from leasework.job",
        "select * from leasework.jobs",
        "select * from leasework.events",
        "insert into leasework.job (id, queue, task_name, payload) "
        "values (gen_random_uuid(), 'q', 't', '{}')",
        "update leasework.job set priority = 1",
        "delete from leasework.job",
        "update leasework.leader set node = null",
        "select leasework.enqueue_plain(gen_random_uuid(), 'q', 't', 0::smallint, 1::smallint, "
        "null, null, true, '{}', now())",
        "select * from leasework.partitions(now(), 1, 0)",
        "select * from leasework.deadline_arm(gen_random_uuid(), 'x', "
        """'{"on_breach": "t", "seconds": 5}')""",
    ],
    "worker": [
        "truncate leasework.job",
        "drop table leasework.job",
        "alter table leasework.job add column x integer",
        "create table leasework.mine (x integer)",
        "insert into leasework.migration (number, name, min_known) values (9, 'x', 9)",
        "update leasework.event set kind = 'x'",
        "update leasework.term set token = 0",
        "create trigger t before insert on leasework.job for each row "
        "execute function leasework.bury()",
        "create or replace function leasework.timeline() returns bigint language sql return 1",
        "alter schema leasework rename to mine",
        "select * from leasework.job_done_default",
        ACTED,
        *(f"delete from leasework.{one} where false" for one in RECORDS),
        *(f"update leasework.{one} set {at} = now() where false" for one, at in TWO),
    ],
    "operator": [
        "truncate leasework.event",
        "update leasework.event set kind = 'x'",
        *(f"delete from leasework.{one} where false" for one in RECORDS),
    ],
    "observer": [
        'select * from leasework.enqueue(\'{"task": "t"}\')',
        "insert into leasework.event (kind, level) values ('x', 'info')",
        "update leasework.schedule set paused = true",
        "delete from leasework.job_done",
        "select nextval('leasework.token_seq')",
        "select * from leasework.partitions(now(), 1, 0)",
        "select 1 from leasework.fence for share",
        "truncate leasework.event",
    ],
    "admin": [
        "create role another_superuser superuser",
        "create table public.mine (x integer)",
        "select pg_read_file('/etc/passwd')",
    ],
}


@pytest.mark.parametrize("role", NAMES)
def test_what_a_role_may_not_do_is_refused(logins, role):
    for text in FORBIDDEN[role]:
        logins.refused(role, text)


def test_only_the_roles_of_people_record_what_they_do(logins):
    for role in ("operator", "admin"):
        logins.sql(ACTED, role)
    for role in ("worker", "observer", "enqueue"):
        logins.refused(role, ACTED)
    assert logins.sql("select count(*) from leasework.event") == [(4,)]


def test_a_worker_prunes_and_yet_the_records_of_the_last_day_stay(logins):
    """Whatever it asks for: no days at all, of a moment in the future."""
    old = "now() - interval '25 hours'"
    for at in ("now()", old):
        logins.sql(
            f"insert into leasework.event (at, kind, level) values ({at}, 'person_acted', 'info');"
            "insert into leasework.tick (app, schedule, fire_at, state, decided_at)"
            f" values ('a', 's', {at}, 'fired', {at});"
            "insert into leasework.attempt (job_id, claim_token, attempt, outcome, ended_at)"
            f" values (gen_random_uuid(), 1, 1, 'discarded', {at});"
            f"insert into leasework.history (at, queue, task_name) values ({at}, 'q', 't')"
        )
    prune = (
        "select leasework.prune_records('{}'::jsonb, 1000, now()),"
        """leasework.prune_records('{"events": 0, "ticks": 0, "attempts": 0, "history": 0}',"""
        " 1000, now() + interval '9 years')"
    )
    for role in ("enqueue", "observer"):
        logins.refused(role, prune)
    assert logins.sql(prune, "worker") == [(0, 4)]
    for record in RECORDS:
        assert logins.sql(f"select count(*) from leasework.{record}") == [(1,)], record
    assert logins.sql(prune, "admin") == [(0, 4)], "the owner may delete them anyway"


TRIGGER = """
create temporary table x (on_failure jsonb, id uuid, task_name text, queue text, state text,
    last_error text, attempt integer, tags jsonb, schedule text, tick_at timestamptz,
    finished_at timestamptz);
create trigger t after insert on x for each row execute function leasework.failed();
insert into x (on_failure, finished_at) values ('{"task": "refund"}', now());
"""


@pytest.mark.parametrize("role", ["observer", "enqueue"])
def test_no_trigger_of_a_login_enqueues_with_the_owners_rights(logins, role):
    logins.refused(role, TRIGGER)


def test_a_login_of_no_role_may_do_nothing_at_all(logins):
    logins.sql("create role t_stranger login")
    try:
        for text in (
            "select * from leasework.jobs",
            'select * from leasework.enqueue(\'{"task": "t"}\')',
        ):
            with (
                pytest.raises(psycopg.errors.InsufficientPrivilege),
                psycopg.connect(make_conninfo(logins.dsn, user="t_stranger")) as stranger,
            ):
                stranger.execute(text.encode())
    finally:
        logins.sql("drop role t_stranger")


def test_without_the_roles_too_nobody_enqueues_who_was_not_granted_it(migrated):
    made = Logins(migrated)
    made.sql("create role t_reader login; grant usage on schema leasework to t_reader")
    try:
        made.refused("reader", 'select * from leasework.enqueue(\'{"task": "t"}\')')
        made.refused("reader", "select * from leasework.partitions(now(), 1, 0)")
    finally:
        made.sql("drop owned by t_reader; drop role t_reader")


def test_operators_of_the_callers_own_do_not_run_with_the_owners_rights(logins):
    """The classical way to more rights: a function that runs as its owner, and a search path."""
    logins.sql("create schema evil authorization t_enqueue")
    with psycopg.connect(logins["enqueue"], autocommit=True) as attacker:
        attacker.execute(
            "create function evil.equal(jsonb, jsonb) returns boolean language plpgsql as "
            "$$ begin raise exception 'ran as %', current_user; end $$"
        )
        attacker.execute(
            "create operator evil.- (leftarg = jsonb, rightarg = jsonb, function = evil.equal)"
        )
        attacker.execute(
            "create operator evil.<= (leftarg = jsonb, rightarg = jsonb, function = evil.equal)"
        )
        attacker.execute("grant usage on schema evil to public")
        attacker.execute("set search_path = evil, pg_catalog")
        job = json.dumps({"task": "t", "payload": {}})
        assert attacker.execute("select * from leasework.enqueue(%s)", (job,)).fetchone()


async def test_the_enqueue_role_sends_signals_and_makes_batches(logins):
    app = App(logins["enqueue"])

    @app.task
    async def plain(n: int) -> None: ...

    try:
        batch = await app.batch([plain.job(n) for n in range(30)], on_done=plain.job(31))
        assert len(batch.jobs) == 30
        assert await app.signal(batch.jobs[0].id, "go")
        assert not await app.signal(batch.id, "go"), "it may not read which jobs there are"
    finally:
        await app.close()


async def test_an_application_enqueues_with_the_enqueue_role_alone(logins):
    app = App(logins["enqueue"])

    @app.task
    async def told(breach: dict[str, Any]) -> None: ...

    @app.task(deadline=Deadline(minutes=5, on_breach=told))
    async def watched() -> None: ...

    @app.task
    async def plain(n: int) -> None: ...

    @app.task(limits=[app.limit("vendor", concurrency=1, key="n")])
    async def limited(n: int) -> None: ...

    assert (await plain.enqueue(n=1)).created
    assert (await limited.enqueue(n=2)).created
    many = await app.enqueue_many([plain.job(n=n) for n in range(50)])
    assert all(job.created for job in many)
    first = await app.enqueue(plain.using(unique="one").job(n=3))
    assert (await app.enqueue(plain.using(unique="one").job(n=3))).id == first.id
    await watched.enqueue()
    async with await psycopg.AsyncConnection.connect(logins["enqueue"]) as user:
        await app.enqueue(plain.job(n=4), on=user)
        await user.rollback()
    with pytest.raises(PermissionDenied):
        await app.jobs()
    await app.close()
    assert logins.sql("select count(*) from leasework.job")[0][0] == 54
    assert logins.sql("select count(*) from leasework.deadline")[0][0] == 1


async def test_a_worker_does_all_its_work_under_the_worker_role(logins):
    app = App(logins["worker"], name="roles")
    ran: list[str] = []

    @app.task(max_attempts=3)
    async def fails_once(ctx: Any) -> None:
        ran.append("fails_once")
        if ctx.attempt == 1:
            raise RuntimeError("once")

    @app.task
    async def in_transaction(ctx: Any) -> None:
        async with await psycopg.AsyncConnection.connect(logins["worker"]) as user:
            await ctx.assert_mine(user)
            await ctx.complete(on=user)
        ran.append("in_transaction")

    @app.task
    async def told(breach: dict[str, Any]) -> None:
        ran.append("told")

    @app.task
    async def quick() -> None:
        ran.append("quick")

    @app.task(deadline=Deadline(seconds=0.5, on_breach=told))
    async def late(ctx: Any) -> None:
        await until_async(lambda: "told" in ran, 60, "the breach to be told")

    @app.every(seconds=1)
    async def ticks() -> None:
        ran.append("ticks")

    app.queue("imports", fair="tenant", weight={"gold": 2})
    vendor = app.limit("vendor", concurrency=2, rate=Rate(100, per=1.0), key="tenant")

    @app.task(queue="imports", limits=[vendor])
    async def limited(tenant: str) -> None:
        ran.append("limited")
        if ran.count("limited") == 1:
            raise vendor.throttled(0.1)

    async with app.node(), app.leader("engine") as lead, app.lock("one") as lock:
        await lead.wait()
        async with await psycopg.AsyncConnection.connect(logins["worker"]) as user:
            await lead.verify(user)
            await lock.verify(user)
        jobs = [await task.enqueue() for task in (fails_once, in_transaction, late)]
        waiting = await app.enqueue(quick.using(run_in=3600, unique="x").job())
        await app.enqueue_many([quick.job() for _ in range(30)])
        assert await app.cancel(waiting.id)
        await app.retry(jobs[0].id)
        await app.enqueue_many([limited.job("gold"), limited.job("tin")])
        wanted = {"fails_once", "in_transaction", "told", "ticks", "quick"}
        await until_async(lambda: ran.count("limited") == 3, 60, "the jobs with limits")
        await until_async(lambda: not wanted - set(ran), 60, "all to run")
        await until_async(lambda: ran.count("fails_once") > 1, 60)
        for job in jobs[1:]:
            await job.wait(60)
        # the leader's duties: the days ahead, pruning, history
        store = await app.store()
        logins.sql("drop table leasework.job_done_" + _tomorrow(logins))
        await store.prune_days(7, None)
        await store.prune({"events": 1, "ticks": 30, "attempts": 30, "history": 14}, 100, None)
        assert logins.sql(f"select to_regclass('leasework.job_done_{_tomorrow(logins)}')")[0][0]
        operator = await app.operator("ann", "cli")
        await operator.run_now(ticks.name)
        await operator.pause(ticks.name)
        await operator.resume(ticks.name)
        await operator.queues.pause("imports")
        await operator.queues.resume("imports")
        await operator.queues.set_weight("imports", "tin", 3)
        await operator.limits.set("vendor", concurrency=3, key="gold")
        await operator.limits.reset("vendor")
        failures = await operator.inspector.events("service_failed")
        assert failures == [], failures
    await app.close()
    assert not logins.sql("select * from leasework.nodes")
    told = json.loads(await asyncio.to_thread(logins.cli, "worker", "doctor", "--json", exits=1))
    assert told["setup"]["denied"] == [] and told["setup"]["tokens"]["following"] > 0
    assert not {"privileges", "database_refuses"} & {found["kind"] for found in told["problems"]}


def _tomorrow(logins: Logins) -> str:
    return str(logins.sql("select to_char(now() at time zone 'UTC' + '1 day', 'YYYYMMDD')")[0][0])


async def test_an_observer_sees_everything_and_the_dashboard_works_for_it(logins):
    boss = App(logins["worker"], name="seen")

    @boss.every(seconds=60)
    async def ticks() -> None: ...

    async with boss.node():
        job = await boss.enqueue(ticks.job())
        await job.wait(60)
        watch = asyncio.to_thread
        await until_async(
            lambda: logins.sql("select 1 from leasework.leaders where holder <> ''"), 60
        )
        assert json.loads(await watch(logins.cli, "observer", "status", "--json"))["ok"]
        for words in (
            "jobs", "leaders", "nodes", "schedules", "schedules ticks", "locks", "deadlines",
            f"jobs show {job.id}", "events", "doctor --role observer", "queues", "limits",
        ):  # fmt: skip
            assert await watch(logins.cli, "observer", *words.split())
        for words in (f"jobs retry {job.id}", "queues pause default"):
            assert not await watch(logins.cli, "observer", *words.split(), exits=1)
        app = App(logins["observer"])
        site = dashboard(app, read_only=True, login=Login(token="correct-horse-battery"))
        transport = httpx.ASGITransport(site)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            wrong = ("ann", "wrong-horse-battery-x")
            assert (await client.get("/jobs", auth=wrong)).status_code in (303, 401)
            client.auth = httpx.BasicAuth("ann", "correct-horse-battery")
            for page in ("", "jobs", f"jobs/{job.id}", "schedules", "leaders", "nodes", "locks",
                         "deadlines", "database", "events", "queues", "limits"):  # fmt: skip
                answer = await client.get(f"/{page}", follow_redirects=True)
                assert answer.status_code == 200, (page, answer.status_code, answer.text[:500])
        await app.close()
    await boss.close()


def test_an_admin_applies_what_comes_next_and_the_schema_stays_the_roles(logins):
    logins.sql("drop table leasework.history", "admin")
    logins.cli("admin", "schema", "verify", exits=1)
    logins.sql("drop schema leasework cascade", "admin")
    logins.sql("grant create on database " + _database(logins) + " to leasework_admin")
    logins.sql("create schema leasework authorization leasework_admin")
    logins.cli("", "schema", "apply")  # as a superuser: it makes them as the schema's owner
    owners = logins.sql(
        "select distinct relowner::regrole::text from pg_class "
        "where relnamespace = 'leasework'::regnamespace"
    )
    assert owners == [("leasework_admin",)]
    assert logins.sql(
        "select proowner::regrole::text from pg_proc where proname = 'enqueue' and prosecdef"
    ) == [("leasework_admin",)]
    logins.cli("admin", "schema", "verify")
    logins.sql(logins.cli("admin", "schema", "sql", "--roles"), "")


def _database(logins: Logins) -> str:
    return str(logins.sql("select quote_ident(current_database())")[0][0])


def test_the_list_of_rights_names_all_tables_views_and_sequences_of_the_schema(logins):
    there = {
        row[0]
        for row in logins.sql(
            "select relname from pg_class where relnamespace = 'leasework'::regnamespace "
            "and relkind in ('r', 'p', 'v', 'S') and relname !~ '^job_done_'"
            # the sequences of columns follow their tables, and the doctor reads only one of them
            "and not (relkind = 'S' and relname <> 'event_id_seq'"
            " and exists (select 1 from pg_depend where objid = pg_class.oid and deptype = 'i'))"
        )
    }
    assert there == {name for name, _ in roles.rights("observer")}
