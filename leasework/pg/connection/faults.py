"""Translates a driver's errors into leasework's. No other module does."""

from __future__ import annotations

import re
from uuid import UUID

import psycopg

from leasework import errors

_STATES: dict[type[errors.LeaseworkError], str] = {
    errors.WrongPassword: "28P01 28000",
    errors.WrongDsn: "3D000",
    errors.PermissionDenied: "42501",
    errors.ReadOnlyServer: "25006",
    errors.SchemaMissing: "3F000 42P01 42883",
    errors.SchemaTooOld: "42703",
    errors.Conflict: "40001 40P01 55P03 57014",
    errors.BadJob: "22003 22007 22008 22023",
    errors.BadPayload: "22P02 22P05 54000 54001",
    errors.BadDeadline: "LH002",
}
"""The SQLSTATEs of each class."""
_BY_STATE = {state: kind for kind, states in _STATES.items() for state in states.split()}
_ENDED = ("XX000", "25P03", "25P04")
"""An internal error, and sessions that the server ended because a transaction was idle or long."""
_NO_MORE_IDS = (
    "the server refuses to write until old transaction ids are frozen",
    "Vacuum the database that the message names, as a superuser",
)
_AT_LIMIT = {
    "GetNewTransactionId": _NO_MORE_IDS,
    "GetNewMultiXactId": _NO_MORE_IDS,
    "PreCommit_Notify": (
        "the server's notification queue is full",
        "End the listening session that has been in a transaction for a long time",
    ),
}
"""What the server cannot do now, by the function that says so, and what to do about it. The same
SQLSTATE otherwise means that a value is too big."""

PRIMARY = "Use the primary's address, or target_session_attrs=read-write"

_WHAT_TO_DO: dict[type[errors.LeaseworkError], str] = {
    errors.WrongPassword: "Check the user and the password in the DSN",
    errors.WrongDsn: "Check the host, the port and the database in the DSN. Write / @ : and # of a "
    "password as %2F %40 %3A and %23",
    errors.PermissionDenied: "Add the login to the group for what it does: "
    "leasework doctor --role worker (or enqueue, observer) says what is missing",
    errors.ReadOnlyServer: f"{PRIMARY}. If it is the primary: {errors.WRITE_AGAIN}",
    errors.SchemaMissing: "Run: leasework schema apply",
    errors.SchemaTooOld: "Run: leasework schema apply",
}

# Messages of refused connections, for which libpq has no SQLSTATE.
_BY_WORDS = (
    ("temporary failure in name resolution", errors.Unavailable),
    ("password authentication failed", errors.WrongPassword),
    ("no password supplied", errors.WrongPassword),
    ("no pg_hba.conf entry", errors.WrongPassword),
    ("invalid dsn", errors.WrongDsn),
    ('missing "=" after', errors.WrongDsn),
    ("invalid connection option", errors.WrongDsn),
    ("bad value for", errors.WrongDsn),
    ("invalid integer value", errors.WrongDsn),
    ("could not match", errors.WrongDsn),
    ("definition of service", errors.WrongDsn),
    ("could not translate host name", errors.WrongDsn),
    ("failed to resolve host", errors.WrongDsn),
    ("name or service not known", errors.WrongDsn),
    ("conversion between", errors.UnsafeServer),
    ("session is read-only", errors.ReadOnlyServer),
    ("session is not read-only", errors.ReadOnlyServer),
)


_SHORT = {
    "53100": "Free space on the server's disk",
    "53200": "Give the server more memory, or lower its work_mem and max_connections",
    "53300": "Close connections, raise max_connections, or put a pooler in front",
}
"""What to do when the server lacks something."""


class Shortages:
    """What the server refused to this process because it lacks disk, memory or connections."""

    count = 0
    newest = ""


shortages = Shortages()


def sqlstate_of(error: BaseException | None) -> str:
    """Return the SQLSTATE of a driver's error; empty: it has none."""
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""


def message_of(error: BaseException) -> str:
    """Return a driver's error in one line, without the position in leasework's own functions."""
    diag = getattr(error, "diag", None)
    if not (text := getattr(diag, "message_primary", None)):
        return " ".join(str(error).split())
    for label in ("detail", "hint"):
        if more := _told(error, f"message_{label}"):
            text += f" {label.upper()}: {more}"  # as asyncpg's str() has it
    return " ".join(text.split())


def translate(error: Exception, *, sent: bool) -> errors.LeaseworkError:
    """Return the error as one of leasework's. ``sent``: the statement had been sent, so that after
    a lost connection its outcome is unknown."""
    state = sqlstate_of(error)
    text = message_of(error)
    if state.startswith(("08", "57P", "53", "58")) or state in _ENDED:
        return _refused(state, text, sent)
    if state == "54000" and (known := _AT_LIMIT.get(_told(error, "source_function"))):
        return errors.Unavailable(known[0], got=text, do=known[1])
    if state == "23505" and "job_key" in text + _told(error, "constraint_name"):
        holder = re.search(r"DETAIL: job (\S{36})$", text)
        return errors.UniqueConflict(
            text.removeprefix("leasework.enqueue: ").partition(" DETAIL: ")[0],
            do="Wait for that job, or enqueue with on_conflict='return'",
            job=UUID(holder[1]) if holder else None,
        )
    if state == "55000" and "recovery" in text:
        state = "25006"
    kind = _BY_STATE.get(state)
    if kind is None and not state:
        lowered = text.lower()
        kind = next((kind for words, kind in _BY_WORDS if words in lowered), None)
        if kind is None and re.search(r'invalid "?[a-z_]+"? value', lowered):
            kind = errors.WrongDsn
        if kind is None and "database" in lowered and "does not exist" in lowered:
            kind = errors.WrongDsn
        if kind is None and "role" in lowered and "does not exist" in lowered:
            kind = errors.WrongPassword
    if kind is errors.WrongDsn and (state or "does not exist" in text):
        return kind("there is no such database", got=text, do="Create it, or correct the DSN")
    if kind is not None:
        return kind(_what(kind), got=text, do=_WHAT_TO_DO.get(kind, ""))
    if isinstance(error, (psycopg.DataError, UnicodeEncodeError)) and not state:
        # the driver cannot send it: text with a NUL or a lone surrogate
        return errors.BadPayload(
            "a value that PostgreSQL cannot store",
            got=text,
            do="Remove NULs and lone surrogates",
        )
    if isinstance(error, psycopg.OperationalError) or not state:
        return errors.Unavailable(
            "the database did not answer",
            got=text,
            sent=sent,
            do="Try again. leasework doctor checks the connection",
        )
    return errors.QueryFailed(
        f"the database refused a statement ({state})",
        got=text,
        do="leasework doctor examines the server",
    )


def _refused(state: str, text: str, sent: bool) -> errors.Unavailable:
    if state.startswith("53"):
        shortages.count += 1
        shortages.newest = text
    do = _SHORT.get(state, "Try again")
    return errors.Unavailable("the database cannot do this now", got=text, sent=sent, do=do)


def _told(error: BaseException, name: str) -> str:
    """Return what the server tells beside the message, which may be in any language: psycopg has it
    in ``diag``, asyncpg in the error."""
    return getattr(getattr(error, "diag", error), name, None) or ""


def _what(kind: type[errors.LeaseworkError]) -> str:
    return (kind.__doc__ or kind.__name__).split("\n\n")[0].replace("\n", " ").rstrip(".")
