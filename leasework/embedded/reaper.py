"""Starts a postmaster, and stops it when its last user is gone, however that user ended.

This file runs as a script, with ``python -I -S -c``: it must start in milliseconds and
not depend on how the caller found ``leasework``. It therefore uses only the standard library; the
rest of the package imports its helpers from here, never the other way round.

A folder has four locks. All are kernel flocks, so that kill -9 releases them:

* ``start.lock``  exclusive: a process is starting, joining, leaving or stopping.
* ``users.lock``  shared: held by each user for its lifetime.
* ``server.lock`` exclusive: inherited by the postmaster and all its children (and by initdb). It is
  free if and only if no process works on the data, which the pid file cannot tell.
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
    """A file descriptor of the lock file, which is created if missing, never through a symlink."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Take the flock without waiting. False if another process holds it."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(fd: int) -> None:
    """Release it, also for copies of ``fd`` in forked processes."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def is_free(path: Path) -> bool:
    """Return whether the lock is free. Call this under the start lock, because it takes the lock
    for a moment."""
    try:
        # Not created: the process that closed the server may be removing the folder right now.
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        return try_lock(fd)
    finally:
        unlock(fd)
        os.close(fd)


def command_line(pid: int) -> list[str] | None:
    """A process's arguments: empty for a zombie or no process, None if there is no /proc."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return [] if Path("/proc/self/cmdline").exists() else None
    except OSError:
        return None
    return [os.fsdecode(part) for part in raw.split(b"\0") if part]


def written_pid(folder: Path) -> int | None:
    """The pid in the pid file, which may be of a dead process, or of another one."""
    file = folder / PGDATA / "postmaster.pid"
    try:
        return int(file.read_text(errors="replace").splitlines()[0])
    except (OSError, IndexError, ValueError):
        return None


def server_pid(folder: Path) -> int | None:
    """The live postmaster of this folder, or None.

    The pid file only suggests a pid. That process must also name our data directory, so that we
    never signal a process that got the pid later.
    """
    pid = written_pid(folder)
    arguments = command_line(pid) if pid is not None else []
    return pid if arguments is None or str(folder / PGDATA) in arguments else None


def stop_server(folder: Path, *, immediate: bool = False) -> bool:
    """Stop the server and wait until its last process is gone. Call it under the start lock.

    First fast (30 s), then immediate (10 s; the postmaster itself then uses SIGKILL). Returns
    False if something still holds ``server.lock``.
    """
    steps = [(signal.SIGQUIT, IMMEDIATE_SECONDS)]
    if not immediate:
        steps.insert(0, (signal.SIGINT, FAST_SECONDS))
    for signum, seconds in steps:
        told = None
        for _ in range(int(seconds / POLL_SECONDS)):
            if is_free(folder / SERVER_LOCK):
                return True
            # A server that has just been launched has no pid file yet: look each time.
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
    """The folder of the socket, or None before the first start. A power loss may leave the file
    empty."""
    try:
        told = (folder / SOCKET_FILE).read_text().strip()
    except FileNotFoundError:
        return None
    return Path(told) if os.path.isabs(told) else None


def socket_owner(socket: Path) -> str | None:
    """The data directory of the postmaster that last bound a socket there, by its own record."""
    try:
        text = (socket / f".s.PGSQL.{PORT}.lock").read_text(errors="replace")
        return os.path.realpath(text.splitlines()[1])
    except (OSError, IndexError):
        return None


def clear_socket(socket: Path) -> None:
    """Remove a dead postmaster's files: PostgreSQL would believe the pid in them."""
    for name in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
        (socket / name).unlink(missing_ok=True)


def remove_socket_folder(folder: Path) -> None:
    """Leave nothing in /tmp once the server has stopped. Call it under the start lock. The folder
    stays if a server of another data directory (a copy of this one) uses it."""
    socket = socket_folder(folder)
    if socket is None or socket_owner(socket) not in (None, str(folder / PGDATA)):
        return
    try:
        clear_socket(socket)
        socket.rmdir()
    except OSError:
        return  # gone already, or not empty: rmdir only removes an empty folder


def _wait_for_the_last(folder: Path, start: int, users: int) -> None:
    """Return when there are no users, holding the start lock so that none can join."""
    while True:
        fcntl.flock(users, fcntl.LOCK_EX)
        # Hold nothing while waiting for the start lock: its holder may want to join.
        unlock(users)
        fcntl.flock(start, fcntl.LOCK_EX)
        if try_lock(users):
            return
        unlock(start)


def _spawn(command: Sequence[str], server_lock: int, uid: int, gid: int) -> None:
    """Start the postmaster in its own session (out of reach of Ctrl-C), with the server lock."""
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
    """Arguments: ``folder server-lock-fd uid gid [command ...]``; -1 for "none". Returns at once:
    the reaper continues in a child process, unless the folder has a reaper already."""
    folder = Path(argv[0])
    server_lock, uid, gid = (int(word) for word in argv[1:4])
    # Opened first, so that a kill closes it first: while a starter can still get the start lock,
    # it must not mistake a dying reaper for a live one.
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
        print(f"leasework: could not stop the server of {folder}", file=sys.stderr)  # noqa: T201
    unlock(reaper)
    unlock(start)


if __name__ == "__main__":
    main(sys.argv[1:])
