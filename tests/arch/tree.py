"""What the rules look at: the files of this repository."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "leasework"
LAB = ROOT / "lab" / "leasework_lab"
TESTS = ROOT / "tests"
SUPPORT = TESTS / "support"
PG = PACKAGE / "pg"
SQL = PG / "sql"
LAB_SQL = LAB / "sql"
MIGRATIONS = SQL / "migrations"


def python_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


def operation_files() -> list[Path]:
    """Each ``sql/<noun>/<verb>.sql`` of the core and of the laboratory, but the migrations and the
    parts that statements share."""
    found = [p for p in SQL.rglob("*.sql") if MIGRATIONS not in p.parents]
    return sorted(p for p in [*found, *LAB_SQL.rglob("*.sql")] if not p.name.startswith("_"))


def shared_parts() -> list[Path]:
    """``sql/<noun>/_<part>.sql``: text that several statements include."""
    return sorted(SQL.rglob("_*.sql"))


def operation_name(path: Path) -> str:
    """As the code names it: ``noun/verb``, or ``leasework_lab:noun/verb``."""
    if LAB in path.parents:
        return f"leasework_lab:{path.relative_to(LAB_SQL).with_suffix('').as_posix()}"
    return path.relative_to(SQL).with_suffix("").as_posix()


def migration_files() -> list[Path]:
    return sorted(MIGRATIONS.rglob("*.sql"))


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tracked_files() -> list[Path]:
    """The files git knows; in a tree without git, all but what is built or hidden."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode == 0:
        names = listing.stdout.decode().split("\0")
        found = [ROOT / name for name in names if name]
    else:
        found = list(_walk(ROOT))
    return sorted(p for p in found if p.is_file() and not p.is_symlink())


def _walk(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name in {".git", "__pycache__", "build", "dist"} or entry.name.endswith("_cache"):
            continue
        if entry.is_dir() and not entry.name.startswith(".venv"):
            yield from _walk(entry)
        elif entry.is_file():
            yield entry
