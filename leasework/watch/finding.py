"""What a check found, and a helper that writes commands."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct, to_builtins

NOTE, WRONG, SILENCED = "note", "wrong", "silenced"


class Finding(Struct, frozen=True):
    """One finding of a check, with what follows from it."""

    kind: str
    """The name of the check, which tools can rely on."""
    level: str
    """``note`` (worth knowing), ``wrong``, or ``silenced`` by a person."""
    sentence: str
    """What was found."""
    do: str
    """What to type. Empty: nothing."""
    docs: str
    """The page of the documentation, relative to its root."""
    severity: str = "warning"
    """``critical``, ``warning`` or ``info``."""
    subject: str = ""
    """What it is about, such as ``queue:mail``. Empty: the whole, or several."""
    since: datetime | None = None
    """When it began, if the database can tell. Timezone-aware."""
    symptoms: tuple[Finding, ...] = ()
    """What this explains, or more of its kind."""
    silence: str = ""
    """Who silenced it, until when, and why."""

    @property
    def info(self) -> bool:
        """Whether nothing is wrong."""
        return self.level != WRONG

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = to_builtins(self)
        return found


def quoted(name: str) -> str:
    """A name quoted for SQL. Any plain name may be a word of the language: user."""
    return '"' + name.replace('"', '""') + '"'
