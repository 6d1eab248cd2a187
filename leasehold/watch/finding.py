"""A finding of the doctor, and helpers that write its commands."""

from __future__ import annotations

from dataclasses import dataclass

OK, NOTE, WRONG = "ok", "note", "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of the doctor."""

    check: str
    """The name of the check, which tools can rely on."""
    level: str
    """``ok``, ``note`` (worth knowing) or ``wrong``."""
    sentence: str
    """What was found."""
    do: str = ""
    """What to type. Empty: nothing."""

    def as_json(self) -> dict[str, str]:
        return {
            "check": self.check,
            "level": self.level,
            "sentence": self.sentence,
            "do": self.do,
        }


def quoted(name: str) -> str:
    """A name quoted for SQL where necessary."""
    return name if name.isidentifier() and name.islower() else '"' + name.replace('"', '""') + '"'


def alter(role: str, name: str, value: str) -> str:
    return f"In psql: alter role {quoted(role)} set {name} = '{value}'"
