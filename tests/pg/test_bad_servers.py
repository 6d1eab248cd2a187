"""Wrong addresses, wrong passwords, servers that cannot serve: one error that says what to do."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql as composed
from psycopg.conninfo import make_conninfo

from leasework import App
from leasework.config import Settings
from leasework.errors import (
    ConfigError,
    LeaseworkError,
    PermissionDenied,
    ReadOnlyServer,
    Unavailable,
    UnsafeServer,
    WrongDsn,
    WrongPassword,
)
from leasework.pg.connection.faults import translate
from leasework.pg.connection.session import Session
from leasework.pg.schema import migrate
from tests.support.pgbouncer import PgBouncer
from tests.support.wait import until

Sql = Callable[..., Awaitable[list[Any]]]


async def refuses(dsn: str, kind: type[LeaseworkError], words: str, **options: Any) -> None:
    """Enqueue, look and take part: each says the same, and soon."""
    app = App(dsn, **options)

    @app.task(name="t")
    async def work() -> None: ...

    async def join() -> None:
        async with app.node():
            raise AssertionError("a node without a database")

    for act in (app.jobs, join) if kind is not Unavailable else (app.jobs,):
        with pytest.raises(kind, match=words) as caught:
            await act()
        assert type(caught.value) is kind
    await app.close()


# -- addresses -------------------------------------------------------------------------------------
async def test_without_an_address_it_says_where_to_put_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEASEWORK_DSN", raising=False)
    with pytest.raises(ConfigError, match=r"Set LEASEWORK_DSN.*embedded"):
        await App().jobs()


@pytest.mark.parametrize("dsn", ["nonsense", "postgres//x", "host=a hots=b", "postgresql://[::1"])
async def test_an_address_that_cannot_be_read(dsn: str) -> None:
    await refuses(dsn, WrongDsn, "cannot be read|cannot be parsed")


async def test_a_host_that_does_not_exist() -> None:
    await refuses("postgresql://u@no-such-host.invalid/x", WrongDsn, "Check the host, the port")


def test_a_name_server_that_does_not_answer_may_answer_later() -> None:
    words = "failed to resolve host 'db': [Errno -3] Temporary failure in name resolution"
    error = translate(psycopg.OperationalError(words), sent=False)
    assert isinstance(error, Unavailable) and not error.sent
    words = "failed to resolve host 'db': [Errno -2] Name or service not known"
    assert isinstance(translate(psycopg.OperationalError(words), sent=False), WrongDsn)


async def test_a_database_or_role_that_does_not_exist(direct_dsn: str) -> None:
    await refuses(make_conninfo(direct_dsn, dbname="none"), WrongDsn, 'database "none" does not')
    await refuses(make_conninfo(direct_dsn, user="none"), WrongPassword, 'role "none" does not')


async def test_a_port_where_nobody_listens_may_pass() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dsn = f"postgresql://u@127.0.0.1:{closed.getsockname()[1]}/x"
        await refuses(dsn, Unavailable, "refused", call_timeout=1)


async def test_a_port_that_never_answers_is_given_up(direct_dsn: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        dsn = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/x"
        app = App(dsn, call_timeout=0.3)
        with pytest.raises(Unavailable, match="in time"):
            await app.jobs()


# -- passwords and privileges ----------------------------------------------------------------------
@pytest.fixture
def guarded_server(own_postgres: Any) -> Iterator[str]:
    """A server that asks everybody but its owner for a password; role ``limited`` has one."""
    server = own_postgres()
    hba = Path(server.data_dir) / "pgdata" / "pg_hba.conf"
    before = hba.read_text()
    with psycopg.connect(server.dsn, autocommit=True) as owner:
        owner.execute("create role limited login password 'right'")
        owner.execute("create role quiet login")
        hba.write_text("local all postgres trust\nlocal all limited,quiet scram-sha-256\n")
        owner.execute("select pg_reload_conf()")
        until(lambda: asks_for_a_password(server.dsn), what="the new rules")
        try:
            yield server.dsn
        finally:
            hba.write_text(before)
            owner.execute("select pg_reload_conf()")


def asks_for_a_password(dsn: str) -> bool:
    try:
        psycopg.connect(make_conninfo(dsn, user="limited", password="wrong")).close()
    except psycopg.OperationalError:
        return True
    return False


async def test_passwords_and_privileges(guarded_server: str) -> None:
    def as_role(user: str, password: str = "") -> str:
        return make_conninfo(guarded_server, user=user, password=password or None)

    check, told = "Check the user and the password", "leasework doctor --role worker"
    await refuses(as_role("limited", "wrong"), WrongPassword, check)
    await refuses(as_role("limited"), WrongPassword, check)
    await refuses(as_role("quiet", "any"), WrongPassword, check)
    await refuses(as_role("stranger", "any"), WrongPassword, check)
    await migrate.apply(Settings(dsn=guarded_server))
    await refuses(as_role("limited", "right"), PermissionDenied, f"permission denied.*{told}")
    with psycopg.connect(guarded_server, autocommit=True) as owner:
        owner.execute("grant usage on schema leasework to limited")
        owner.execute("grant select on leasework.migration to limited")
    await refuses(as_role("limited", "right"), PermissionDenied, f"permission denied.*{told}")


# -- servers that only read ------------------------------------------------------------------------
async def test_a_read_only_server_is_refused_and_nothing_is_lost(
    dsn: str, migrated: str, sql: Sql
) -> None:
    app = App(dsn)

    @app.task(name="t")
    async def work() -> int:
        return 1

    kept = await work.enqueue()
    await app.close()
    name = composed.Identifier(psycopg.conninfo.conninfo_to_dict(migrated)["dbname"])
    with psycopg.connect(migrated, autocommit=True) as owner:
        owner.execute(
            composed.SQL("alter database {} set default_transaction_read_only = on").format(name)
        )
    await refuses(migrated, ReadOnlyServer, "no replica.*Reset default_transaction_read_only")
    with pytest.raises(ReadOnlyServer):
        await migrate.apply(Settings(dsn=migrated))
    with psycopg.connect(migrated) as user, pytest.raises(ReadOnlyServer):
        app.sync.enqueue(work.job(), on=user)
    with psycopg.connect(migrated, autocommit=True) as owner:
        owner.execute("set default_transaction_read_only = off")
        owner.execute(composed.SQL("alter database {} reset all").format(name))
    async with app.node():
        assert await kept.wait(60) == 1
    await app.close()


@pytest.mark.parametrize(
    ("name", "weak", "good"),
    [
        ("synchronous_commit", "off", "on"),
        ("default_transaction_isolation", "serializable", "read committed"),
    ],
)
async def test_weak_defaults_of_a_role_are_overridden_and_behind_a_pooler_refused(
    direct_dsn: str, migrated: str, pgbouncer: PgBouncer, name: str, weak: str, good: str
) -> None:
    session = await Session.open(
        Settings(dsn=make_conninfo(direct_dsn, options=f"-c {name}={weak}")), "test"
    )
    cursor = await session.connection.execute(f"show {name}".encode())
    assert await cursor.fetchone() == (good,)
    await session.close()
    database = composed.Identifier(psycopg.conninfo.conninfo_to_dict(migrated)["dbname"])
    with psycopg.connect(migrated, autocommit=True) as owner:
        change = composed.SQL("alter database {} set {} = {}")
        owner.execute(change.format(database, composed.Identifier(name), weak))
    pgbouncer.admin("reconnect")
    await refuses(pgbouncer.dsn, UnsafeServer, f"{name}={weak}.*ALTER ROLE")
