"""What a check or the doctor found, and helpers that write commands."""

from __future__ import annotations

from dataclasses import asdict, dataclass

OK, NOTE, WRONG = "ok", "note", "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of the doctor or of another check."""

    kind: str
    """The name of the check, which tools can rely on."""
    level: str
    """``ok``, ``note`` (worth knowing) or ``wrong``."""
    sentence: str
    """What was found."""
    do: str = ""
    """What to type. Empty: nothing."""
    docs: str = "howto/doctor.md"
    """The page of the documentation, relative to its root."""

    @property
    def info(self) -> bool:
        """Whether nothing is wrong."""
        return self.level != WRONG

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def quoted(name: str) -> str:
    """A name quoted for SQL where necessary."""
    return name if name.isidentifier() and name.islower() else '"' + name.replace('"', '""') + '"'


def alter(role: str, name: str, value: str) -> str:
    return f"In psql: alter role {quoted(role)} set {name} = '{value}'"
