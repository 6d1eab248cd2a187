"""Builds the text of a select that claims its rows, and explains PostgreSQL's refusals."""

from __future__ import annotations

import re

from leasework.errors import ConfigError, WrongSelect, suggest
from leasework.pg.connection.faults import message_of, sqlstate_of

LOCKS = {
    "update": "for update",
    "no key update": "for no key update",
    "share": "for share",
    "key share": "for key share",
}
_NOT_CODE = re.compile(
    r"""--[^\n]* | /\*.*?\*/
      | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | [eE]'(?:[^'\\]|''|\\.)*' | '(?:[^']|'')*'""",
    re.VERBOSE | re.DOTALL,
)
_LOCKS_ALREADY = re.compile(r"\bfor\s+(?:no\s+key\s+update|update|(?:key\s+)?share)\b", re.I)
_NAME = re.compile(r'[A-Za-z_]\w*|"(?:[^"]|"")+"')


def check_lock(lock: str) -> str:
    """Raises ConfigError if it is not a row lock."""
    if lock not in LOCKS:
        raise ConfigError(f"no row lock is named {lock!r}", do=suggest(str(lock), LOCKS))
    return lock


def claiming(select: str, of: str | None, lock: str) -> str:
    """``select`` with a lock on table ``of`` that skips rows that are already locked. Raises
    WrongSelect if it is not a single select, already has a lock, or names no table: in a join,
    every table's rows would be locked."""
    code = _NOT_CODE.sub(" ", select).strip()
    if code.endswith(";") or ";" in code:
        raise WrongSelect("this must be one select, without a semicolon", got=select)
    if not re.match(r"(?:select|with)\b", code, re.IGNORECASE):
        raise WrongSelect("only a select can claim rows", got=select)
    if _LOCKS_ALREADY.search(code):
        raise WrongSelect(
            "the select already has a lock",
            got=select,
            do="Leave it out: leasework adds one with SKIP LOCKED and OF the table",
        )
    if of is None:
        raise WrongSelect(
            "a select as text does not say which table's rows to claim: a join would lock the rows "
            "of all its tables",
            do="Name the table: of='orders' (its name or alias in FROM)",
        )
    if not isinstance(of, str) or not _NAME.fullmatch(of):
        raise WrongSelect(
            "of= must be a table's name or alias as it appears in FROM, without its schema", got=of
        )
    return f"{select.strip()}\n{LOCKS[check_lock(lock)]} of {of} skip locked"


def refused(error: BaseException) -> WrongSelect | None:
    """The error for PostgreSQL's refusal to lock these rows; None if the driver's ``error`` is
    another one."""
    state, text = sqlstate_of(error), message_of(error)
    if state not in ("0A000", "42P01") or not re.search(
        r"FOR (NO KEY )?(KEY )?(UPDATE|SHARE)", text
    ):
        return None
    hint = (
        "Name a table (or its alias) that is in FROM"
        if state == "42P01"
        else "Claim the ids with a plain select, without DISTINCT, GROUP BY or UNION, and not on "
        "the nullable side of an outer join; then read the rest"
    )
    return WrongSelect("PostgreSQL cannot lock the rows of this select", got=text, do=hint)
