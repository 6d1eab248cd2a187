"""What a check found, and a helper that writes commands."""

from __future__ import annotations

from dataclasses import asdict, dataclass

NOTE, WRONG = "note", "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check."""

    kind: str
    """The name of the check, which tools can rely on."""
    level: str
    """``note`` (worth knowing) or ``wrong``."""
    sentence: str
    """What was found."""
    do: str
    """What to type. Empty: nothing."""
    docs: str
    """The page of the documentation, relative to its root."""

    @property
    def info(self) -> bool:
        """Whether nothing is wrong."""
        return self.level != WRONG

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def quoted(name: str) -> str:
    """A name quoted for SQL. Any plain name may be a word of the language: user."""
    return '"' + name.replace('"', '""') + '"'
