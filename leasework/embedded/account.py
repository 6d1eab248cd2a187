"""Chooses the account that the server runs under: PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from leasework.errors import EmbeddedError

# nobody is the last choice, because other software shares it.
CANDIDATES = ("postgres", "nobody")


class Account(Struct, frozen=True):
    """An unprivileged account under which root runs the server."""

    name: str
    uid: int
    gid: int

    def may(self, path: Path, bits: int) -> bool:
        """Return whether the mode of ``path`` grants ``bits`` (1: execute or enter, 4: read)."""
        status = path.stat()
        if status.st_uid == self.uid:
            shift = 6
        elif status.st_gid == self.gid:
            shift = 3
        else:
            shift = 0
        return (status.st_mode >> shift) & bits == bits

    def closed_parent(self, path: Path) -> Path | None:
        """The first folder above ``path`` that this account may not enter."""
        return next((each for each in reversed(path.parents) if not self.may(each, 1)), None)

    def may_use(self, program: Path) -> bool:
        """Return whether the account may read and run the program."""
        program = program.resolve()
        return self.closed_parent(program) is None and self.may(program, 5)


def server_account(pgdata: Path) -> Account | None:
    """Return None for an ordinary user, who runs the server directly. For root, return the owner of
    existing data (a machine's accounts may change), or else ``postgres``, or else ``nobody``."""
    if os.geteuid() != 0:
        return None
    with suppress(FileNotFoundError, KeyError):
        owner = pwd.getpwuid(pgdata.stat().st_uid)
        if owner.pw_uid != 0:
            return Account(owner.pw_name, owner.pw_uid, owner.pw_gid)
    for name in CANDIDATES:
        with suppress(KeyError):
            found = pwd.getpwnam(name)
            return Account(name, found.pw_uid, found.pw_gid)
    raise EmbeddedError(
        f"PostgreSQL does not run as root, and there is no account {' or '.join(CANDIDATES)}",
        do="Create one (useradd --system postgres), or start the program as an ordinary user",
    )
