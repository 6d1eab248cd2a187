"""Masks secrets in arguments, results and tracebacks that people see."""

from __future__ import annotations

import re
from typing import Any

from leasework.model.job import Unreadable

SECRET = re.compile(
    r"passw|passphrase|secret|token|api_?key|access_?key|private_?key|credential|authori[sz]ation"
    r"|cookie|session_?id|\bdsn\b|\bpin\b|\bcvv\b|\biban\b|card_?number",
    re.IGNORECASE,
)
MASK = "••••••"
_IN_ADDRESS = re.compile(r"(://[^\s:/@'\"]*:)[^\s/@'\"]+@")
_IN_CODE = re.compile(
    r"((?:" + SECRET.pattern + r")\w{0,40}['\"]?\]?\s{0,4}[=:]\s{0,4})(['\"]).{0,500}?\2",
    re.IGNORECASE,
)
"""Every repetition is bounded, so that the text's author cannot make the search slow."""
_DEEPEST = 100


def masked(value: Any, secret: re.Pattern[str] = SECRET, depth: int = 0) -> Any:
    """Return the value with a mask in place of each value under a secret's name."""
    if depth > _DEEPEST or isinstance(value, Unreadable):
        return MASK
    if isinstance(value, dict):
        return {
            key: MASK if secret.search(str(key)) else masked(part, secret, depth + 1)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [masked(part, secret, depth + 1) for part in value]
    return value


def masked_text(text: str) -> str:
    """Mask passwords in URLs, and quoted text after a secret's name, as in a traceback."""
    return _IN_CODE.sub(rf"\1\2{MASK}\2", _IN_ADDRESS.sub(rf"\1{MASK}@", text))
