"""The text of a select that claims its rows, and what is said when PostgreSQL refuses it."""

from __future__ import annotations

import re

from leasehold.errors import ConfigError, WrongSelect, suggest

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
    """Raises ConfigError for a lock that is none."""
    if lock not in LOCKS:
        raise ConfigError(f"no row lock is named {lock!r}", do=suggest(str(lock), LOCKS))
    return lock


def claiming(select: str, of: str | None, lock: str) -> str:
    """``select`` with the lock of table ``of``, passing over rows that are locked already.

    Raises WrongSelect for what is no single select, has a lock of its own, or does not say of
    which table: in a join every table's rows would be locked.
    """
    code = _NOT_CODE.sub(" ", select).strip()
    if code.endswith(";") or ";" in code:
        raise WrongSelect("this is not one select without a semicolon", got=select)
    if not re.match(r"(?:select|with)\b", code, re.IGNORECASE):
        raise WrongSelect("rows are claimed by a select", got=select)
    if _LOCKS_ALREADY.search(code):
        raise WrongSelect(
            "the select has a lock of its own",
            got=select,
            do="Leave it out: it is added here, with SKIP LOCKED and OF the table",
        )
    if of is None:
        raise WrongSelect(
            "a select as text does not say of which table the rows are to be claimed: in a join "
            "the rows of all its tables would be locked",
            do="Say it: of='orders' (its name or alias in FROM)",
        )
    if not isinstance(of, str) or not _NAME.fullmatch(of):
        raise WrongSelect(
            "of= must be one table's name or alias as it stands in FROM, without its schema",
            got=of,
        )
    return f"{select.strip()}\n{LOCKS[check_lock(lock)]} of {of} skip locked"


def refused(error: Exception) -> WrongSelect | None:
    """What is said for PostgreSQL's refusal to lock these rows; None: it is another error."""
    state = getattr(error, "sqlstate", None) or getattr(
        getattr(error, "orig", None), "sqlstate", None
    )
    text = " ".join(str(getattr(error, "orig", None) or error).split())
    if state not in ("0A000", "42P01") or not re.search(
        r"FOR (NO KEY )?(KEY )?(UPDATE|SHARE)", text
    ):
        return None
    hint = (
        "Name a table (or its alias) that is in FROM"
        if state == "42P01"
        else "Claim the ids with a plain select, without DISTINCT, GROUP BY or UNION, and not on "
        "the side of an outer join that may be empty; then read the rest"
    )
    return WrongSelect("PostgreSQL cannot lock the rows of this select", got=text, do=hint)
