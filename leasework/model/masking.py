"""Masks secrets in arguments, results and tracebacks that people see."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from leasework.model.job import Unreadable

SECRET = re.compile(
    r"passw|passphrase|secret|token|api_?key|access_?key|private_?key|credential|authori[sz]ation"
    r"|cookie|session_?id|\bdsn\b|\bpin\b|\bcvv\b|\biban\b|card_?number",
    re.IGNORECASE,
)
MASK = "••••••"
_ADDRESS = re.compile(r"[^\s'\"]+")
_IN_ADDRESS = re.compile(r"(://[^:/@\[]{0,200}:)(?!\d{1,5}[/?#]).+")
"""A password may have an @ or a / that is not escaped. A port is none."""
_IN_DSN = re.compile(
    r"(\b(?:\w{0,20}passw\w{0,20}|passphrase|pwd)\s{0,2}=\s{0,2}|--[\w-]{0,20}passw\w{0,20}\s{1,2})"
    r"(?:'(?:[^'\\]|\\.){0,500}'?|[^\s&'\"]{1,500})",
    re.IGNORECASE,
)
_IN_CODE = re.compile(
    r"((?:" + SECRET.pattern + r")\w{0,40}['\"]?\]?\s{0,4}[=:]\s{0,4})(['\"]).{0,500}?\2",
    re.IGNORECASE,
)
"""Every repetition is bounded, so that the text's author cannot make the search slow."""
_DEEPEST = 100


def masked(value: Any, secret: re.Pattern[str] = SECRET, depth: int = 0) -> Any:
    """Return the value with a mask in place of each value under a secret's name, and of each
    password of a URL or a DSN."""
    if depth > _DEEPEST or isinstance(value, Unreadable):
        return MASK
    if isinstance(value, dict):
        return {
            key: MASK if secret.search(str(key)) else masked(part, secret, depth + 1)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [masked(part, secret, depth + 1) for part in value]
    return _without_passwords(value) if isinstance(value, str) else value


def masked_row(record: Any) -> dict[str, Any]:
    """A dataclass as a dictionary, with the secrets of its arguments and its result masked."""
    row = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    return row | {name: masked(row[name]) for name in ("payload", "result") if name in row}


def _without_passwords(text: str) -> str:
    if "://" in text and "@" in text:
        text = _ADDRESS.sub(_hide, text)
    return _IN_DSN.sub(rf"\1{MASK}", text)


def _hide(found: re.Match[str]) -> str:
    before, at, after = found[0].rpartition("@")
    return _IN_ADDRESS.sub(rf"\1{MASK}", before) + at + after


def masked_text(text: str) -> str:
    """Mask passwords in URLs and DSNs, and quoted text after a secret's name, as in a traceback."""
    return _IN_CODE.sub(rf"\1\2{MASK}\2", _without_passwords(text))
