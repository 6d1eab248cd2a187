"""Which errors are the same: their first line without what differs from one to the next."""

from __future__ import annotations

import re
from hashlib import sha256

from leasework.errors import error_line

LONGEST = 200
"""The most characters of an error that count."""
DIGITS = 12
"""Of a fingerprint, in hexadecimal."""
GAP = "…"
_CLASS = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*: ")
_DIFFERS = re.compile(
    r"""
    "[^"]*" | (?<!\w)'[^']*'(?!\w) | `[^`]*`                       # quoted
    | (?<![\w.+-])[\w.+-]{1,64}@[\w.-]+                            # an e-mail address
    | (?<![\w:])(?=[0-9a-f:]{0,40}\d)[0-9a-f]{0,4}(?:::?[0-9a-f]{1,4}){1,7}(?![\w:])   # IPv6
    | (?<![\w.-])(?=[\w.-]*\d)[\w.-]+                              # a number, an id, an address
    """,
    re.VERBOSE | re.IGNORECASE,
)
_GAPS = re.compile(rf"{GAP}(?:[:,;/ ]*{GAP})+")


def pattern(error: str) -> str:
    """Return an error without numbers, ids, quoted values and addresses: ``ConnectionError: host …
    refused``. The class at its beginning stays as it is."""
    line = error_line(error, LONGEST)
    named = _CLASS.match(line)
    kept = named[0] if named else ""
    return kept + _GAPS.sub(GAP, _DIFFERS.sub(GAP, line[len(kept) :]))


def fingerprint(error: str) -> str:
    """Return a short text that is the same for all errors with this :func:`pattern`."""
    return sha256(pattern(error).encode("utf-8", "backslashreplace")).hexdigest()[:DIGITS]
