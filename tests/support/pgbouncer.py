"""Runs a real pgbouncer in transaction mode, on a unix socket in its own folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.wait import until

PORT = 6432  # only part of the socket's name


def program() -> str | None:
    return shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


class PgBouncer:
    """``PgBouncer(dsn)`` starts a pgbouncer in front of that server. ``.dsn`` connects through it.

    It reaches every database of the server, always as the user of ``dsn``. ``settings`` override
    the defaults below in the ``[pgbouncer]`` section.
    """

    def __init__(self, dsn: str, settings: Mapping[str, str | int] | None = None) -> None:
        found = program()
        if found is None:
            raise FileNotFoundError("pgbouncer is not installed (Debian: apt install pgbouncer)")
        self._program = found
        self._target = conninfo_to_dict(dsn)
        self._settings = dict(settings or {})
        # in the system's temporary folder, because the path of a socket has at most 107 bytes
        self.folder = Path(tempfile.mkdtemp(prefix="lh-bouncer-"))
        self.log = self.folder / "log"
        self._account = self._account_name()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._write_settings()
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def dsn(self) -> str:
        return self._dsn(str(self._target.get("dbname") or "postgres"))

    @property
    def admin_dsn(self) -> str:
        """pgbouncer's console, in autocommit: SHOW POOLS, PAUSE, KILL …"""
        return self._dsn("pgbouncer")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it again after :meth:`stop`."""
        assert self._process is None, "it runs: a second one would never be stopped"
        as_account = ["-u", self._account] if self._account else []
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [self._program, *as_account, str(self.folder / "ini")],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        until(self._answers, 10, "pgbouncer to answer", ignoring=(psycopg.OperationalError,))

    def stop(self, sig: int = signal.SIGTERM) -> None:
        """End the process and its clients' connections. :meth:`start` may follow."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(sig)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def admin(self, command: str) -> list[dict[str, object]]:
        """Run one command on the console, and return its rows."""
        with psycopg.connect(self.admin_dsn, autocommit=True) as connection:
            cursor = psycopg.ClientCursor(connection)  # no extended protocol there
            cursor.execute(command)
            if cursor.description is None:
                return []
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- inside --------------------------------------------------------------------------------
    def _dsn(self, dbname: str) -> str:
        user = self._target.get("user") or pwd.getpwuid(os.getuid()).pw_name
        return make_conninfo(host=str(self.folder), port=PORT, user=user, dbname=dbname)

    def _account_name(self) -> str | None:
        """Return the account for pgbouncer, which does not run as root: the owner of the folder of
        the server's socket, who may use it."""
        if os.geteuid() != 0:
            return None
        host = str(self._target.get("host") or "")
        owner = Path(host).stat().st_uid if host.startswith("/") else 0
        account = pwd.getpwuid(owner) if owner else pwd.getpwnam("nobody")
        os.chown(self.folder, account.pw_uid, account.pw_gid)
        return account.pw_name

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"pgbouncer ended at its start:\n{self.log.read_text()}")
        with psycopg.connect(self.dsn, connect_timeout=5, autocommit=True) as connection:
            return connection.execute("select 1").fetchone() == (1,)

    def _write_settings(self) -> None:
        target = {k: self._target.get(k) for k in ("host", "port", "user", "password")}
        target["user"] = target["user"] or pwd.getpwuid(os.getuid()).pw_name
        settings = {
            "unix_socket_dir": str(self.folder),
            "unix_socket_mode": "0777",
            "listen_port": PORT,
            "pidfile": "",
            "logfile": "",
            "auth_type": "any",
            "admin_users": target["user"],
            "pool_mode": "transaction",
            "default_pool_size": 20,
            "max_client_conn": 500,
            "server_login_retry": 1,
            "syslog": 0,
            **self._settings,
        }
        where = " ".join(f"{k}='{v}'" for k, v in target.items() if v)
        lines = ["[databases]", f"* = {where}", "", "[pgbouncer]"]
        lines += [f"{key} = {value}" for key, value in settings.items()]
        (self.folder / "ini").write_text("\n".join(lines) + "\n")
