"""Imitates the restrictions of managed services: withheld functions, and settings of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.pgbouncer import PgBouncer

WITHHELD = (
    "pg_current_wal_lsn",
    "pg_walfile_name",
    "pg_control_checkpoint",
    "pg_control_init",
    "pg_control_recovery",
    "pg_control_system",
    "pg_ls_dir",
    "pg_ls_logdir",
    "pg_ls_tmpdir",
    "pg_ls_waldir",
    "pg_read_file",
    "pg_stat_file",
    "pg_terminate_backend",
)
"""Functions of pg_catalog that services withhold."""
REFUSALS = ("revoked", "55000", "42501", "0A000")
"""How a function is withheld: the right is revoked from everybody, or the function raises this
SQLSTATE."""


def withhold(dsn: str, how: str = "revoked") -> None:
    """Withhold the functions in this database from every ordinary role. ``dsn`` is a
    superuser's."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "select proname, pg_get_function_identity_arguments(oid), prorettype::regtype::text, "
            "proretset from pg_proc where pronamespace = 'pg_catalog'::regnamespace "
            "and proname = any (%s)",
            (list(WITHHELD),),
        ).fetchall()
        assert {row[0] for row in found} == set(WITHHELD)
        for name, arguments, result, _ in found:
            function = f"pg_catalog.{name}({arguments})"
            if how == "revoked" or name not in WITHHELD[:2]:
                connection.execute(f"revoke execute on function {function} from public".encode())
                continue
            # built-in functions are called by number, so replace the function with one that raises
            connection.execute(f"alter function {function} rename to {name}_withheld".encode())
            connection.execute(
                f"create function {function} returns {result} language plpgsql as $$ begin "
                f"raise '% is not supported here', '{name}' using errcode = '{how}'; "
                "end $$".encode()
            )


@contextmanager
def ordinary_login(dsn: str, settings: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a DSN for an ordinary role that may create a schema in that database, as managed
    services provide it. ``settings`` are the role's, such as ``statement_timeout = '30s'``."""
    database = conninfo_to_dict(dsn)["dbname"]
    name = f"ordinary_{database}"
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f"create role {name} login".encode())
        admin.execute(f"grant create, temporary on database {database} to {name}".encode())
        for setting in settings:
            admin.execute(f"alter role {name} set {setting}".encode())
        try:
            yield make_conninfo(dsn, user=name)
        finally:
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", (name,)
            )
            admin.execute(f"drop owned by {name} cascade".encode())
            admin.execute(f"drop role {name}".encode())


SETTINGS = (
    "statement_timeout = '10s'",
    "idle_in_transaction_session_timeout = '5s'",
    "timezone = 'Asia/Kolkata'",
    "datestyle = 'German, DMY'",
    # the documentation requires this of a login behind a pooler; the database has another default
    "default_transaction_isolation = 'read committed'",
)
"""Settings of the role."""


@contextmanager
def managed(dsn: str, how: str = "55000") -> Iterator[str]:
    """Yield the application's DSN on the strictest of all services: an ordinary role with its own
    settings, functions that refuse (``how``), a serializable database, and a pooler in transaction
    mode. ``dsn`` is a superuser's, for an empty database."""
    database = conninfo_to_dict(dsn)["dbname"]
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(
            f"alter database {database} set default_transaction_isolation = 'serializable'".encode()
        )
    withhold(dsn, how)
    with ordinary_login(dsn, SETTINGS) as login:
        bouncer = PgBouncer(login)
        try:
            yield bouncer.dsn
        finally:
            bouncer.close()
