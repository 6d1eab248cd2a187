"""The folder of one embedded server: its access rights, locks, data and socket.

::

    <data_dir>/                this account's (root's, for root)
        start.lock users.lock server.lock reaper.lock     see reaper.py
        pgdata/                the server account's, 0700
        postgres.log           at most about 10 MB, and postgres.log.1
        socket                 a file with the path of the socket's folder
        programs-18.4/         only for root, and only if the wheel is closed to the account
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from psycopg import pq

from leasework.embedded import reaper
from leasework.embedded.account import Account, server_account
from leasework.env import Env
from leasework.errors import EmbeddedError

HOME_SETTING = "LEASEWORK_HOME"
ROOT_HOME = Path("/var/lib/leasework")
# A socket's path has room for 107 bytes, and every process must find the same one. That rules out
# TMPDIR, which differs between processes, and XDG_RUNTIME_DIR, which goes away at logout.
SOCKET_PARENT = Path("/tmp")
SOCKET_PREFIX = "leasework-"
ROLE = "leasework"

LOCK_SECONDS = 180.0  # longer than another process's initdb and start together
JOIN_SECONDS = 10.0
LOG_BYTES = 10_000_000
TAIL_LINES = 20
TAIL_BYTES = 4_000


def default_folder(major: str) -> Path:
    """``pg18`` in LEASEWORK_HOME, else /var/lib/leasework for root (whose home is closed to the
    server's account), else XDG_STATE_HOME/leasework, else ~/.local/state/leasework. Raises
    EmbeddedError for an account without a home."""
    home = os.environ.get(HOME_SETTING)
    if not home and os.geteuid() == 0:
        return ROOT_HOME / f"pg{major}"
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(home or f"{state or '~/.local/state'}/leasework")
    try:
        return base.expanduser() / f"pg{major}"
    except RuntimeError:  # as in a container that runs under any uid
        raise EmbeddedError(
            "this account has no home folder for the data of the embedded server",
            got=str(base),
            do=f"Set {HOME_SETTING} to a folder that it may write",
        ) from None


class Folder:
    """One server's folder. Create it with :meth:`prepare`."""

    def __init__(self, path: Path, account: Account | None, env: Env) -> None:
        self.path = path
        self.account = account
        self.env = env
        self.pgdata = path / reaper.PGDATA
        self.log = path / "postgres.log"
        self.socket_file = path / reaper.SOCKET_FILE

    @classmethod
    def prepare(cls, data_dir: Path, env: Env) -> Folder:
        """Create what is missing, and check that we and the server's account may use it."""
        path = Path(os.path.realpath(data_dir.expanduser()))
        account = server_account(path / reaper.PGDATA)
        for missing in reversed([each for each in (path, *path.parents) if not each.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
            # Whatever the umask: the account must be able to enter what we create for it.
            missing.chmod(0o700 if account is None else 0o755)
        folder = cls(path, account, env)
        folder._check()
        return folder

    def _check(self) -> None:
        status = self.path.stat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            # Root must not create files where another account can plant symlinks.
            raise EmbeddedError(
                f"The data folder is not a folder of this account (uid {os.geteuid()})",
                got=f"{self.path}, of uid {status.st_uid}",
                do="Choose another one, or run as its owner",
            )
        if (self.path / "PG_VERSION").exists():
            raise EmbeddedError(
                "The data folder is itself a PostgreSQL data directory, which leasework did "
                "not create",
                got=str(self.path),
                do="Choose an empty folder",
            )
        if self.account is None:
            return
        closed = self.account.closed_parent(self.path)
        if closed is not None:
            raise EmbeddedError(
                f"As root, PostgreSQL runs as {self.account.name!r}, which may not enter {closed}",
                got=str(self.path),
                do=f"Choose a folder that it can reach (default: {ROOT_HOME}), or open that one: "
                f"chmod o+x {closed}",
            )
        if not self.account.may(self.path, 1):
            os.chown(self.path, -1, self.account.gid)
            self.path.chmod(stat.S_IMODE(status.st_mode) | 0o010)

    # -- locks ---------------------------------------------------------------------------------
    @contextmanager
    def starting(self) -> Iterator[None]:
        """Exclude others from starting, joining, leaving and stopping. Waits up to 3 minutes."""
        fd = reaper.open_lock(self.path / reaper.START_LOCK)
        try:
            self._lock(fd, LOCK_SECONDS, "Another process has been starting or stopping the server")
            yield
        finally:
            reaper.unlock(fd)
            os.close(fd)

    def join(self) -> int:
        """Become a user of the server until the descriptor and its forked copies are closed."""
        fd = reaper.open_lock(self.path / reaper.USERS_LOCK)
        try:
            # The reaper may hold it for microseconds.
            self._lock(fd, JOIN_SECONDS, "The reaper holds the users' lock", shared=True)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def nobody_left(self) -> bool:
        """Return whether there are no users. Call this under the start lock, so that none joins."""
        fd = reaper.open_lock(self.path / reaper.USERS_LOCK)
        try:
            for _ in range(int(JOIN_SECONDS / reaper.POLL_SECONDS)):
                if reaper.try_lock(fd):
                    return True
                if reaper.try_lock(fd, shared=True):
                    reaper.unlock(fd)
                    # There are users, or the reaper has only now let go: it takes the lock once,
                    # then waits for the start lock. A second try is therefore decisive.
                    return reaper.try_lock(fd)
                time.sleep(reaper.POLL_SECONDS)
            return False
        finally:
            reaper.unlock(fd)
            os.close(fd)

    def is_free(self, lock: str) -> bool:
        """Return whether the lock is free. Call this under the start lock."""
        return reaper.is_free(self.path / lock)

    def _lock(self, fd: int, seconds: float, what: str, *, shared: bool = False) -> None:
        deadline = self.env.boot_now() + seconds
        while not reaper.try_lock(fd, shared=shared):
            if self.env.boot_now() > deadline:
                raise EmbeddedError(
                    f"{what} for {seconds:g} seconds",
                    got=str(self.path),
                    do=f"To see who has it open: fuser -v '{self.path}'/*.lock",
                )
            time.sleep(reaper.POLL_SECONDS)

    # -- the server ----------------------------------------------------------------------------
    def socket(self) -> Path | None:
        """The socket's folder, or None before the first start."""
        return reaper.socket_folder(self.path)

    def pid(self) -> int | None:
        """The postmaster's pid, or None if no server runs."""
        return reaper.server_pid(self.path)

    def answers(self) -> bool:
        """Return whether a server of *this* data directory accepts connections.

        The server of a copied or deleted folder could answer the ping. The file next to the socket,
        which a postmaster writes when it binds, names its data directory.
        """
        socket = self.socket()
        if socket is None or not ping(socket):
            return False
        return reaper.socket_owner(socket) == str(self.pgdata)

    def make_socket_folder(self) -> Path:
        """Return a private folder for the socket: the previous one if only this account owns it, or
        a new one. The server must not be running."""
        socket = self.socket()
        if socket is None or not self._may_have(socket):
            socket = SOCKET_PARENT / f"{SOCKET_PREFIX}{self.env.new_id().hex[-12:]}"
            if not self._may_have(socket):
                raise EmbeddedError("A new socket folder cannot be made", got=str(socket))
            aside = self.path / "socket.new"
            aside.write_text(f"{socket}\n")
            aside.rename(self.socket_file)
        return socket

    def _may_have(self, socket: Path) -> bool:
        """Return whether the folder belongs to the server, or was created now. All accounts can
        write to /tmp, so this does not touch a symlink or another account's folder."""
        with suppress(FileExistsError):  # then it must have the owner and mode of a new one
            socket.mkdir(mode=0o700)
            self.give(socket)
        status = socket.lstat()
        owner = os.geteuid() if self.account is None else self.account.uid
        private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
        if not private or status.st_uid != owner or ping(socket):
            return False
        if reaper.socket_owner(socket) not in (None, str(self.pgdata)):
            return False  # a copy of this data folder has it
        reaper.clear_socket(socket)
        return True

    def give(self, path: Path) -> None:
        """Make the server's account the owner of a new file."""
        if self.account is not None:
            os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)

    def open_log(self) -> int:
        """A descriptor that appends to the log, which is rotated here while no server runs."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        return os.open(self.log, flags, 0o600)

    def log_tail(self, since: int = 0) -> str:
        """The last 20 lines (4000 bytes) of the log after byte ``since``."""
        try:
            with self.log.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(since, end - TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-TAIL_LINES:]) or "(the log is empty)"


def ping(socket: Path) -> bool:
    """Return whether a server there accepts connections, like pg_isready, within 2 seconds."""
    conninfo = f"host={socket} port={reaper.PORT} user={ROLE} dbname=postgres connect_timeout=2"
    return pq.PGconn.ping(conninfo.encode()) == pq.Ping.OK
