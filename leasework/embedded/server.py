"""A local PostgreSQL that any number of processes share, and that stops with the last of them."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

from leasework.embedded import reaper
from leasework.embedded.binaries import Binaries, find_binaries, reachable
from leasework.embedded.folder import ROLE, Folder, default_folder
from leasework.env import Env
from leasework.errors import EmbeddedError

INITDB_SECONDS = 120.0
SPAWN_SECONDS = 30.0
READY_SECONDS = 60.0

DEFAULTS: Mapping[str, str] = {
    "max_connections": "200",
    "shared_buffers": "128MB",
    "cluster_name": "leasework",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
    "log_timezone": "UTC",
    # Not "$user": the role has the name of the schema, which is not the place for others' tables.
    "search_path": "public",
}
FIXED: Mapping[str, str] = {
    "listen_addresses": "",
    "port": str(reaper.PORT),
    "unix_socket_permissions": "0700",
    "logging_collector": "off",
    "log_destination": "stderr",
}
# Only leasework sets these: they decide where the server listens, and who can connect.
OURS = FIXED.keys() | {
    "config_file", "data_directory", "external_pid_file", "hba_file", "unix_socket_directories",
}  # fmt: skip


class EmbeddedServer:
    """One use of a local server; see :meth:`start`. Also a context manager.

    The server runs as long as any process uses it: it stops with the last :meth:`close`, or when
    the last process ends in any way. A forked process counts as a user until it ends.
    """

    def __init__(self, folder: Folder, binaries: Binaries, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._binaries = binaries
        self._settings = settings
        self._users_fd: int | None = None

    @classmethod
    def start(
        cls,
        data_dir: Path | None = None,
        *,
        version: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Join the server of ``data_dir``, or start it; returns when it accepts connections.

        ``data_dir`` None: a folder per user and major version (see ``LEASEWORK_HOME``).
        ``version``: a major version (``"16"``) or an exact one (``"16.14"``). ``settings``:
        PostgreSQL's own; they have no effect if the server already runs. The first start creates
        the data (about a second).
        Raises EmbeddedError, with the end of the server's log if there is one.
        """
        _check_settings(settings or {})
        binaries = find_binaries(version)
        with _system_errors("The embedded PostgreSQL could not be started"):
            path = default_folder(binaries.major) if data_dir is None else Path(data_dir)
            server = cls(Folder.prepare(path, Env()), binaries, dict(settings or {}))
            with server._folder.starting():
                server._join()
        return server

    @property
    def dsn(self) -> str:
        """A ``postgresql://`` URL of the unix socket, for the role ``leasework``, a superuser."""
        socket = quote(str(self._folder.socket()), safe="")
        return f"postgresql://{ROLE}@/postgres?host={socket}&port={reaper.PORT}"

    @property
    def data_dir(self) -> Path:
        """The folder of everything; PostgreSQL's own data directory is ``pgdata`` in it."""
        return self._folder.path

    @property
    def version(self) -> str:
        """The version of the programs, for example ``"18.4"``."""
        return self._binaries.version

    @property
    def pid(self) -> int:
        """The postmaster's pid. A restart changes it. Raises EmbeddedError if no server runs."""
        pid = self._folder.pid()
        if pid is None:
            raise EmbeddedError(
                "The embedded PostgreSQL is not running",
                got=str(self.data_dir),
                do="Call restart(), or start() again",
            )
        return pid

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start it for every user; ``immediate`` is a crash, with recovery at the start.
        Also brings back a server that died. Raises EmbeddedError."""
        if self._users_fd is None:
            raise EmbeddedError("This server object is closed", do="Call start() again")
        with _system_errors("The server could not be restarted"), self._folder.starting():
            self._stop(immediate=mode == "immediate")
            self._serve()

    def close(self) -> None:
        """Stop using the server. The last user stops it and waits. May be called repeatedly. Raises
        EmbeddedError."""
        fd, self._users_fd = self._users_fd, None
        if fd is None:
            return
        with _system_errors("The embedded PostgreSQL could not be left"):
            try:
                with self._folder.starting():
                    # Not unlocked: that would also release the lock for the process that forked us.
                    os.close(fd)
                    fd = -1
                    self._stop_if_last()
            finally:
                if fd >= 0:
                    os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- under the start lock ------------------------------------------------------------------
    def _join(self) -> None:
        self._check_version()
        self._users_fd = self._folder.join()
        try:
            self._serve()
        except BaseException:
            os.close(self._users_fd)
            self._users_fd = None
            self._stop_if_last()
            raise

    def _serve(self) -> None:
        """Make sure that a server answers and that a reaper watches over it."""
        server_lock = self._claim_data()
        if server_lock is None:
            if self._folder.is_free(reaper.REAPER_LOCK):
                self._run_reaper()
            return
        try:
            self._binaries = reachable(self._binaries, self._folder.account, self._folder.path)
            if not self._folder.pgdata.exists():
                self._create_data(server_lock)
            self._drop_false_pid_file()
            command = self._command(self._folder.make_socket_folder())
            log_start = self._run_reaper(server_lock, command)
        finally:
            os.close(server_lock)
        self._wait_until_ready(log_start)

    def _claim_data(self) -> int | None:
        """The server lock if no process works on the data; None if a server answers.

        Waits while the server starts, recovers or stops, or while an orphaned initdb runs.
        """
        fd = reaper.open_lock(self._folder.path / reaper.SERVER_LOCK)
        try:
            deadline = self._folder.env.boot_now() + READY_SECONDS
            while not reaper.try_lock(fd):
                if self._folder.answers():
                    os.close(fd)
                    return None
                if self._folder.env.boot_now() > deadline:
                    raise EmbeddedError(
                        f"Processes of an earlier server have held {self._folder.path} for "
                        f"{READY_SECONDS:g} seconds without answering (pid "
                        f"{self._folder.pid()}). The end of its log:\n{self._folder.log_tail()}",
                        do="Stop them. A process with another /tmp (a container, systemd's "
                        "PrivateTmp) cannot share the server: give it another folder",
                    )
                time.sleep(reaper.POLL_SECONDS)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _check_version(self) -> None:
        try:
            major = (self._folder.pgdata / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            return
        if major != self._binaries.major:
            raise EmbeddedError(
                f"PostgreSQL {major} created the data folder, but these programs are "
                f"{self._binaries.version}",
                got=str(self._folder.path),
                do=f"Request version={major!r} (LEASEWORK_POSTGRES_VERSION={major}), or choose "
                "another folder",
            )

    def _create_data(self, server_lock: int) -> None:
        """Run initdb aside, then rename: a pgdata that exists is complete and on disk."""
        aside = self._folder.pgdata.with_name("pgdata.new")
        if aside.exists():
            shutil.rmtree(aside)
        aside.mkdir(mode=0o700)
        self._folder.give(aside)
        locale = ["--locale=C"]
        if int(self._binaries.major) >= 17:
            # Unicode's upper and lower case, the same whatever locales the machine has.
            locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        command = [str(self._binaries.initdb), "-D", str(aside), "-U", ROLE, "-E", "UTF8"]
        command += [*locale, "--auth-local=trust", "--auth-host=reject", "--no-instructions"]
        account = self._folder.account
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=INITDB_SECONDS,
                # If we are killed, it continues alone; the lock makes the next process wait.
                pass_fds=(server_lock,),
                start_new_session=True,
                umask=0o077,
                cwd="/",
                env=_environment(),
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        except subprocess.TimeoutExpired as error:
            raise EmbeddedError(f"initdb took more than {INITDB_SECONDS:g} seconds") from error
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
            raise EmbeddedError(f"initdb failed in {aside}:\n{tail}")
        aside.rename(self._folder.pgdata)
        _sync_folder(self._folder.path)

    def _drop_false_pid_file(self) -> None:
        """Remove a postmaster.pid whose pid now belongs to another program.

        PostgreSQL mistakes any process with that pid for a server, even a zombie, and pids repeat
        when a container restarts. This process holds the server lock, so leasework's is not alive.
        PostgreSQL itself handles the pid file of a server that was started by hand.
        """
        pid = reaper.written_pid(self._folder.path)
        arguments = reaper.command_line(pid) if pid is not None else None
        if arguments is None or (arguments and "postgres" in os.path.basename(arguments[0])):
            return
        (self._folder.pgdata / "postmaster.pid").unlink(missing_ok=True)

    def _command(self, socket: Path) -> list[str]:
        settings = {
            **DEFAULTS,
            **self._settings,
            **FIXED,
            "unix_socket_directories": str(socket),
        }
        command = [str(self._binaries.postgres), "-D", str(self._folder.pgdata)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return command

    def _run_reaper(self, server_lock: int = -1, command: Sequence[str] = ()) -> int:
        """Start the server if there is a command, and a reaper if there is none. Returns the size
        of the log before."""
        account = self._folder.account
        uid, gid = (account.uid, account.gid) if account else (-1, -1)
        words = [str(self._folder.path), str(server_lock), str(uid), str(gid), *command]
        log = self._folder.open_log()
        try:
            log_start = os.fstat(log).st_size
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", inspect.getsource(reaper), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(server_lock,) if command else (),
                start_new_session=True,
                cwd="/",
                env=_environment(),
                timeout=SPAWN_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise EmbeddedError(f"The launcher took more than {SPAWN_SECONDS:g} s") from error
        finally:
            os.close(log)
        if done.returncode != 0:
            tail = self._folder.log_tail(log_start)
            raise EmbeddedError(f"PostgreSQL could not be launched:\n{tail}")
        return log_start

    def _wait_until_ready(self, log_start: int) -> None:
        deadline = self._folder.env.boot_now() + READY_SECONDS
        while not self._folder.answers():
            died = self._folder.is_free(reaper.SERVER_LOCK)
            if died or self._folder.env.boot_now() > deadline:
                what = "stopped while starting" if died else f"not ready in {READY_SECONDS:g} s"
                raise EmbeddedError(
                    f"PostgreSQL {self.version} {what}. The end of {self._folder.log}:\n"
                    f"{self._folder.log_tail(log_start)}"
                )
            time.sleep(reaper.POLL_SECONDS)

    def _stop_if_last(self) -> None:
        if self._folder.nobody_left():
            self._stop()
            reaper.remove_socket_folder(self._folder.path)

    def _stop(self, *, immediate: bool = False) -> None:
        if not reaper.stop_server(self._folder.path, immediate=immediate):
            raise EmbeddedError(
                f"PostgreSQL (pid {self._folder.pid()}) does not stop. The end of "
                f"{self._folder.log}:\n{self._folder.log_tail()}"
            )


@contextmanager
def _system_errors(what: str) -> Iterator[None]:
    """Turn errors of the operating system (permissions, a full disk) into EmbeddedError."""
    try:
        yield
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedError(what, got=f"{type(error).__name__}: {error}") from error


def _check_settings(settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        if name in OURS:
            raise EmbeddedError(f"leasework itself sets {name}", got=value, do="Leave it out")
        if not re.fullmatch(r"[A-Za-z_][\w.]*", name) or "\0" in value:
            raise EmbeddedError(
                "This is not a setting of PostgreSQL", got=f"{name}={value!r}", do="Correct it"
            )


def _environment() -> dict[str, str]:
    """Our environment without what PostgreSQL would obey (PGDATA, PGPORT, a broken locale)."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "LC_ALL": "C"}


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
