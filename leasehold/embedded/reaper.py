"""Starts a postmaster, and stops it when its last user is gone, however that user went.

Run as a script, by path and with ``python -I -S``: it must start in milliseconds and must not
depend on how the caller found ``leasehold``. Hence only the standard library here; the rest of
the package imports its helpers from this file, never the other way.

The four locks of a folder, all kernel flocks, so that kill -9 releases them:

* ``start.lock``  exclusive: somebody is starting, joining, leaving or stopping.
* ``users.lock``  shared by each user for its life.
* ``server.lock`` exclusive, inherited by the postmaster and by all its children (and by initdb):
  it is free if and only if no process works on the data. The pid file cannot tell that.
* ``reaper.lock`` exclusive: at most one reaper.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

START_LOCK = "start.lock"
USERS_LOCK = "users.lock"
SERVER_LOCK = "server.lock"
REAPER_LOCK = "reaper.lock"
PGDATA = "pgdata"
SOCKET_FILE = "socket"
PORT = 5432

POLL_SECONDS = 0.01
FAST_SECONDS = 30.0
IMMEDIATE_SECONDS = 10.0


def open_lock(path: Path) -> int:
    """A file descriptor of the lock file (made when missing, never through a symlink)."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Take the flock without waiting; False when another holds it."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(fd: int) -> None:
    """Release it, also for copies of ``fd`` that a fork made meanwhile."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def is_free(path: Path) -> bool:
    """Nobody holds that lock. Only meaningful under the start lock, since a probe takes it."""
    try:
        # Not created: whoever closed the server may be removing the folder at this moment.
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        if not try_lock(fd):
            return False
        unlock(fd)
        return True
    finally:
        os.close(fd)


def command_line(pid: int) -> list[str] | None:
    """The arguments of a process; empty for a zombie or none, None where there is no /proc."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return [] if Path("/proc/self/cmdline").exists() else None
    except OSError:
        return None
    return [os.fsdecode(part) for part in raw.split(b"\0") if part]


def server_pid(folder: Path) -> int | None:
    """The live postmaster of this folder, or None.

    The pid file only proposes; the process must also name our data directory, so that a pid
    that was given to somebody else is never signalled.
    """
    pgdata = folder / PGDATA
    try:
        pid = int((pgdata / "postmaster.pid").read_text(errors="replace").splitlines()[0])
    except (OSError, IndexError, ValueError):
        return None
    arguments = command_line(pid)
    if arguments is None or str(pgdata) in arguments:
        return pid
    return None


def stop_server(folder: Path, *, immediate: bool = False) -> bool:
    """Stop it and wait until its last process is gone; under the start lock.

    Fast first (30 s), then immediate (10 s; the postmaster itself then uses SIGKILL).
    False: something still holds ``server.lock``.
    """
    steps = [(signal.SIGQUIT, IMMEDIATE_SECONDS)]
    if not immediate:
        steps.insert(0, (signal.SIGINT, FAST_SECONDS))
    for signum, seconds in steps:
        told = None
        for _ in range(int(seconds / POLL_SECONDS)):
            if is_free(folder / SERVER_LOCK):
                return True
            # A server that was only just launched has no pid file yet: look each time.
            pid = server_pid(folder)
            if pid is not None and pid != told:
                try:
                    os.kill(pid, signum)
                except ProcessLookupError:
                    continue
                told = pid
            time.sleep(POLL_SECONDS)
    return False


def socket_folder(folder: Path) -> Path | None:
    """Where the socket is, or None before the first start."""
    try:
        return Path((folder / SOCKET_FILE).read_text().strip())
    except FileNotFoundError:
        return None


def socket_owner(socket: Path) -> str | None:
    """The data directory of the postmaster that last bound a socket there, by its own word."""
    try:
        text = (socket / f".s.PGSQL.{PORT}.lock").read_text(errors="replace")
        return os.path.realpath(text.splitlines()[1])
    except (OSError, IndexError):
        return None


def clear_socket(socket: Path) -> None:
    """Remove what a dead postmaster left there: PostgreSQL would believe the pid in it."""
    for name in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
        (socket / name).unlink(missing_ok=True)


def remove_socket_folder(folder: Path) -> None:
    """Leave nothing in /tmp once the server is stopped; under the start lock. The folder stays
    when a server of another data directory (a copy of this one) has it."""
    socket = socket_folder(folder)
    if socket is None or socket_owner(socket) not in (None, str(folder / PGDATA)):
        return
    try:
        clear_socket(socket)
        socket.rmdir()
    except OSError:
        return  # gone already, or not empty: only an empty folder is lost


def _wait_for_the_last(folder: Path, start: int, users: int) -> None:
    """Return when there is no user; the start lock is then ours, so that none can come."""
    while True:
        fcntl.flock(users, fcntl.LOCK_EX)
        # Hold nothing while waiting for the start lock: whoever has it may want to join.
        unlock(users)
        fcntl.flock(start, fcntl.LOCK_EX)
        if try_lock(users):
            return
        unlock(start)


def _spawn(command: Sequence[str], server_lock: int, uid: int, gid: int) -> None:
    """Start the postmaster in its own session (Ctrl-C is not for it), with the server lock."""
    account = {} if uid < 0 else {"user": uid, "group": gid, "extra_groups": list[int]()}
    subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(server_lock,),
        umask=0o077,
        cwd="/",
        **account,  # type: ignore[call-overload]
    )


def main(argv: Sequence[str]) -> None:
    """``folder server-lock-fd uid gid [command ...]``; -1 for "none". Returns at once: the
    reaper goes on in a child of its own, unless the folder has one already."""
    folder = Path(argv[0])
    server_lock, uid, gid = (int(word) for word in argv[1:4])
    # Opened first, closed first should we be killed: while a starter can still get the start
    # lock, it must not believe in a reaper that is on its way out.
    reaper = open_lock(folder / REAPER_LOCK)
    start, users = open_lock(folder / START_LOCK), open_lock(folder / USERS_LOCK)
    needed = try_lock(reaper)
    if argv[4:]:
        _spawn(argv[4:], server_lock, uid, gid)
    if not needed or os.fork():
        os._exit(0)
    if server_lock >= 0:
        os.close(server_lock)
    _wait_for_the_last(folder, start, users)
    if stop_server(folder):
        remove_socket_folder(folder)
    else:
        print(f"leasehold: could not stop the server of {folder}", file=sys.stderr)  # noqa: T201
    unlock(reaper)
    unlock(start)


if __name__ == "__main__":
    main(sys.argv[1:])
