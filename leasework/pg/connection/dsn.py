"""Parses a DSN. Its errors contain no part of the password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from leasework import errors

FORMS = "Use postgresql://user:password@host:5432/database, or host=… dbname=… user=…, or embedded"
_ESCAPES = (
    "In a postgresql:// DSN write each of @ : / ? # % in the password as %40 %3A %2F %3F %23 %25"
)


def read_dsn(dsn: str) -> dict[str, Any]:
    """Return the parts of a DSN. Raises WrongDsn, whose message contains no part of a password."""
    if errors.storable(dsn) != dsn:  # libpq would stop at the NUL, and connect elsewhere
        raise errors.WrongDsn("the DSN contains a NUL or a lone surrogate")
    if not dsn.startswith(("postgresql://", "postgres://")):
        _check_form(dsn)
    try:
        given: dict[str, Any] = conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeError) as error:
        raise errors.WrongDsn(
            "the DSN cannot be parsed", got=_without_quotes(error, dsn), do=FORMS
        ) from None
    ports = str(given.get("port") or "").split(",")
    if "@" in str(given.get("host") or "") or not all(p.isdecimal() for p in ports if p):
        raise errors.WrongDsn(
            "the DSN cannot be parsed: its host contains an @, or its port is not a number",
            do=_ESCAPES,
        )
    for port in ports:
        if port and not (len(port) < 6 and 1 <= int(port) <= 65535):
            # do not show the port: it may be the beginning of a password that contains a /
            raise errors.WrongDsn("a port of the DSN is not between 1 and 65535", do=_ESCAPES)
    hosts = str(given.get("host") or given.get("hostaddr") or "").split(",")
    if len(ports) not in (1, len(hosts)):
        raise errors.WrongDsn(
            f"the DSN has {len(hosts)} hosts and {len(ports)} ports",
            do="Give one port for all hosts, or one for each: host1:5432,host2:5433",
        )
    return given


def _check_form(dsn: str) -> None:
    """Raise WrongDsn for a DSN that is neither a URL that libpq knows nor key=value."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.:-]{0,40}):/", dsn)
    if scheme:
        name = scheme[1]
        plain = name.lower().removeprefix("jdbc:").partition("+")[0]
        do = FORMS
        if "+" in name and plain in ("postgresql", "postgres"):
            do = "Begin it with postgresql://: what follows the + is for SQLAlchemy"
        raise errors.WrongDsn("the DSN cannot be parsed: unknown scheme", got=name, do=do)
    if "=" not in dsn and dsn.strip():
        raise errors.WrongDsn(
            "the DSN cannot be parsed: it is neither a URL nor key=value", do=FORMS
        )


def _without_quotes(error: Exception, dsn: str) -> str:
    """Return libpq's message without quotations, which may contain the whole DSN. If the DSN
    contains a quote, return none of the message."""
    if '"' in dsn:
        return "a DSN with a quote"
    return re.sub(r'"[^"]*"?', '"…"', " ".join(str(error).split()))


def as_url(parts: Mapping[str, Any]) -> str:
    """Return the parts as ``postgresql://…``, which libpq, SQLAlchemy and asyncpg parse. A socket's
    folder and several hosts become parameters of the query."""
    rest = {key: str(value) for key, value in parts.items() if value is not None}
    account = quote(rest.pop("user", ""), safe="")
    if "password" in rest:
        account += ":" + quote(rest.pop("password"), safe="")
    path = quote(rest.pop("dbname", ""), safe="")
    place = ""
    if re.fullmatch(r"[A-Za-z0-9._:-]+", rest.get("host", "")):
        place = rest.pop("host")
        place = f"[{place}]" if ":" in place else place
        if "port" in rest:
            place += ":" + rest.pop("port")
    query = f"?{urlencode(rest, quote_via=quote, safe='')}" if rest else ""
    return f"postgresql://{account}{'@' if account else ''}{place}/{path}{query}"
