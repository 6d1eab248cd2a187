"""The next version, made from this one: a copy of the package with a number and a migration."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support.procs import ROOT

PACKAGE = ROOT / "leasework"
NEXT_NUMBER = "9.9.0"
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Version:
    """``path`` is what its processes have as PYTHONPATH."""

    name: str
    path: Path

    @property
    def migrations(self) -> list[int]:
        found = (self.path / "leasework" / "pg" / "sql" / "migrations").glob("[0-9]*_*.sql")
        return sorted(int(path.name[:4]) for path in found)


@dataclass(frozen=True)
class Build:
    """A next version. ``functions``: pairs of texts in functions of the first migration, which the
    new one replaces. ``code``: pairs of texts in files of the package."""

    name: str
    what: str
    """It says what the next version does."""
    script: str
    functions: tuple[tuple[str, Pairs], ...] = ()
    code: tuple[tuple[str, Pairs], ...] = ()
    min_known: int = 1


SOUND = Build(
    "sound",
    "adds a column and an index, replaces a function, and gives another one a column more",
    """
alter table leasework.job add column origin text;
create index job_origin on leasework.job (origin) where origin is not null;
drop function leasework.claim;
""",
    functions=(
        ("claim", (("j.task_name <> all (not_tasks)",
                    "j.task_name <> all (not_tasks) and j.origin is distinct from 'nowhere'"),
                   ("seen bigint[])", "seen bigint[], origin text)"),
                   ("null::bigint[];", "null::bigint[], j.origin;"))),
        ("enqueue_plain", (("requeue_seconds, history, payload)",
                            "requeue_seconds, history, payload, origin)"),
                           ("keep, arguments)", "keep, arguments, 'plain')"))),
    ),
    code=(("pg/sql/job/_finish.sql",
           (("g.progress_note,", "coalesce(g.progress_note, g.origin),"),)),),
)  # fmt: skip
BROKEN = (
    Build(
        "renamed-column",
        "takes a column away that the previous version writes",
        "alter table leasework.job rename column progress_note to note;",
        code=tuple(
            (f"pg/sql/job/{name}.sql", ((old, new),))
            for name, old, new in (
                ("ack", "progress_note = null", "note = null"),
                ("_back", "progress_note = null", "note = null"),
                ("progress", "progress_note =", "note ="),
                ("_finish", "g.progress_note", "g.note"),
            )
        ),
    ),
    Build("stop-first", "needs that no older version runs beside it", SOUND.script, min_known=2),
)
BY_NAME = {build.name: build for build in (SOUND, *BROKEN)}


def next_version(build: Build, folder: Path) -> Version:
    """Write the next version into the folder. Each text that it replaces must be there."""
    made = folder / "leasework"
    shutil.copytree(PACKAGE, made, ignore=shutil.ignore_patterns("__pycache__"))
    number = re.compile(r'^VERSION = ".+"$', re.M)
    _replace(made / "version.py", lambda text: number.sub(f'VERSION = "{NEXT_NUMBER}"', text))
    for name, pairs in build.code:
        _replace(made / name, partial(replaced, pairs))
    migrations = made / "pg" / "sql" / "migrations"
    first = (migrations / "0001_initial.sql").read_text("utf-8")
    parts = [f"-- min_known: {build.min_known}", build.script.strip()]
    parts += [replaced(pairs, function_in(first, name)) for name, pairs in build.functions]
    (migrations / "0002_next.sql").write_text("\n\n".join(parts) + "\n", "utf-8")
    return Version("new", folder)


def _replace(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text("utf-8")
    after = change(before)
    assert after != before, path
    path.write_text(after, "utf-8")


def replaced(pairs: Pairs, text: str) -> str:
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def function_in(script: str, name: str) -> str:
    """The statement that replaces a function, with the text that the script gives it."""
    found = re.search(rf"^create (function leasework\.{name}\(.*?^end \$\$;)$", script, re.M | re.S)
    assert found, name
    return f"create or replace {found[1]}"
