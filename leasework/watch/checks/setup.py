"""Checks of the set-up: the login, the connection and the server. Only the doctor makes them."""

from __future__ import annotations

from collections.abc import Iterator

from leasework.errors import shorten
from leasework.store.setup import Setup
from leasework.watch.checks.registry import Said, listed, setup_check
from leasework.watch.finding import NOTE, quoted

_LIFT = "leasework schema lift-tokens"
_BATCH_MS = 2000
"""A statement of leasework may take this long."""


@setup_check(
    "The login lacks a privilege that its role needs.",
    "leasework schema sql --roles | psql; then: grant {group} to {login}",
)
def _privileges(setup: Setup) -> Iterator[str | Said]:
    login, role = setup.server["login"], setup.role
    if setup.denied:
        yield Said(
            f"{login!r} lacks what a login for {role!r} needs: {listed(setup.denied)}",
            {"group": f"{setup.schema}_{role}", "login": quoted(login)},
        )


@setup_check(
    "The schema differs from a new one.",
    "leasework schema verify lists every difference. Undo manual changes by hand, and run "
    "leasework schema apply for missing migrations",
)
def _schema_differs(setup: Setup) -> Iterator[str | Said]:
    if setup.not_compared:
        yield Said(
            f"The schema was not compared with a new one: {setup.not_compared}",
            level=NOTE,
            do="leasework schema verify, as a login that may create temporary tables",
        )
    if setup.differences:
        first = "; ".join(shorten(line, 160).strip("'") for line in setup.differences[:2])
        yield f"The schema differs from a new one in {len(setup.differences)} places: {first}"


@setup_check(
    "The connection goes through a pooler: nodes poll, and session advisory locks are refused.",
    "For wake-ups within milliseconds, give the workers a DSN that goes to PostgreSQL directly",
    level=NOTE,
)
def _pooler(setup: Setup) -> Iterator[str | Said]:
    if setup.server["pooled"]:
        yield (
            "The connection goes through a pooler: nodes do not use LISTEN but poll, and session "
            "advisory locks are refused; everything else works"
        )


@setup_check(
    "A setting of the server or the role loses commits (synchronous_commit, fsync, "
    "full_page_writes), lets tables grow (autovacuum), or, behind a pooler, ends leasework's "
    "statements (statement_timeout, transaction_timeout).",
    "In psql: alter system set {name} = on; select pg_reload_conf()",
)
def _server_settings(setup: Setup) -> Iterator[str | Said]:
    settings, role = setup.server["settings"], quoted(setup.server["login"])
    commit = settings.get("synchronous_commit")
    if commit not in ("on", "remote_apply"):
        yield Said(
            f"synchronous_commit is {commit}: acknowledged commits can be lost. leasework "
            "overrides it for itself; jobs from your own transactions can be lost",
            do=f"In psql: alter role {role} set synchronous_commit = 'on'",
        )
    broken = "a crash of the machine can lose or break everything"
    for name, why in (
        ("fsync", broken),
        ("full_page_writes", broken),
        ("autovacuum", "job tables grow without limit, and claims become slow"),
    ):
        if settings.get(name) == "off":
            yield Said(f"{name} is off: {why}", {"name": name})
    for name in ("statement_timeout", "transaction_timeout"):
        if setup.server["pooled"] and 0 < int(settings.get(name) or 0) < _BATCH_MS:
            yield Said(
                f"{name} is {settings[name]} ms for this role, and leasework cannot set its own "
                "behind a pooler: batches and migrations take longer",
                do=f"In psql: alter role {role} set {name} = '30s'",
            )


@setup_check(
    "Tokens or ids would repeat, because the data came without its sequences; or (a note) the "
    "server does not report its timeline, as on some managed services.",
    _LIFT,
)
def _tokens(setup: Setup) -> Iterator[str | Said]:
    tokens = setup.tokens
    if tokens is None:
        return
    if tokens.following is None:
        yield "The row that keeps tokens growing is missing: nothing can be claimed or led"
    elif tokens.following <= (tokens.highest or 0):
        yield (
            f"Tokens repeat: the next claim gets {tokens.following}, and {tokens.highest} was "
            "given before. The data was moved here without its sequences"
        )
    elif tokens.behind:
        yield "Sequences are behind their rows. The data was moved here without its sequences"
    if tokens.timeline is None:
        yield Said(
            "The server does not report its timeline, as on some managed services. This matters "
            "only after a failover that loses commits: then tokens could repeat",
            level=NOTE,
            do=f"Only after such a failover: {_LIFT}",
        )
