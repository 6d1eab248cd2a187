"""Three PostgreSQL servers under Patroni, and the etcd in which they agree: all on loopback, in a
folder of their own, on ports that were free, under an unprivileged account when we are root."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
from leasework_lab.server import DEBIAN, unprivileged

from tests.support.wait import until

LIBRARIES = Path(sys.prefix) / "failover"
PASSWORD = "failover"
NAMES = ("a", "b", "c")
TTL_SECONDS = 20
"""Patroni's least: after so long without its leader the others elect one."""


def needed() -> dict[str, Path]:
    """The programs; LookupError names the one that is missing."""
    bins = sorted(DEBIAN.glob("*/bin/pg_rewind"))
    etcd = shutil.which("etcd", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if not bins or not etcd or not LIBRARIES.is_dir():
        raise LookupError("make failover needs Debian's postgresql and etcd-server, and patroni")
    return {"bin": bins[-1].parent, "etcd": Path(etcd)}


def free_ports(count: int) -> list[int]:
    """All of them at once, so that no two are the same."""
    opened = [socket.socket() for _ in range(count)]
    try:
        for one in opened:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in opened]
    finally:
        for one in opened:
            one.close()


def interpreter(who: dict[str, Any]) -> str:
    """A Python of our own version that the account of the servers may run."""
    version = f"python3.{sys.version_info.minor}"
    for path in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run([path, "-c", ""], check=True, cwd="/", **who)
            return path
    raise LookupError(f"the account of the servers may run no {version}: {who}")


class Cluster:
    """``dsn`` names all three servers and asks for the one that can be written to."""

    def __init__(self, *, synchronous: bool) -> None:
        self.programs = needed()
        self.folder = Path(tempfile.mkdtemp(prefix="lh-failover-"))
        self.folder.chmod(0o711)
        self.who = unprivileged()
        self.libraries = self.folder / "libraries"
        shutil.copytree(LIBRARIES, self.libraries)
        for path in (self.libraries, *self.libraries.rglob("*")):
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
        ports = free_ports(8)
        self.etcd_ports, self.ports = ports[:2], dict(zip(NAMES, ports[2:5], strict=True))
        self.rest = dict(zip(NAMES, ports[5:], strict=True))
        self.synchronous = synchronous
        self.started: list[subprocess.Popen[bytes]] = []
        self.patroni: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def dsn(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        user = f"postgres:{PASSWORD}"
        return f"postgresql://{user}@{hosts}/postgres?target_session_attrs=read-write"

    # -- starting and stopping ---------------------------------------------------------------------
    def _run(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder / name,
                env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder / name), "LC_ALL": "C",
                     "PYTHONPATH": str(self.libraries), "ETCD_UNSUPPORTED_ARCH": "arm64"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                **self.who,
            )  # fmt: skip
        self.started.append(process)
        return process

    def _own(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        if self.who:
            os.chown(folder, self.who["user"], self.who["group"])
        return folder

    def start(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in self.etcd_ports)
        self._run(
            self._own("etcd").name, str(self.programs["etcd"]), "--data-dir", "data",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}", "--unsafe-no-fsync",
        )  # fmt: skip
        until(lambda: self._get(client + "/health"), 60, "etcd")
        for name in NAMES:
            folder = self._own(name)
            config = folder / "patroni.json"  # JSON is YAML
            config.write_text(json.dumps(self._config(name, folder)))
            config.chmod(0o644)
            self.patroni[name] = self._run(
                name, interpreter(self.who), "-m", "patroni", str(config)
            )
            if name == NAMES[0]:
                until(self.leader, 90, "the first server")
        until(lambda: self._replicas_stream(2), 120, "two replicas")

    def _config(self, name: str, folder: Path) -> dict[str, Any]:
        address = f"127.0.0.1:{self.ports[name]}"
        rest = f"127.0.0.1:{self.rest[name]}"
        login = {"username": "postgres", "password": PASSWORD}
        return {
            "scope": "failover", "name": name, "log": {"level": "INFO"},
            "restapi": {"listen": rest, "connect_address": rest},
            "etcd3": {"hosts": [f"127.0.0.1:{self.etcd_ports[0]}"]},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_SECONDS, "loop_wait": 1, "retry_timeout": 3,
                    "maximum_lag_on_failover": 1 << 30, "primary_start_timeout": 0,
                    "synchronous_mode": self.synchronous,
                    "postgresql": {"use_pg_rewind": True, "parameters": {
                        "max_connections": 60, "shared_buffers": "32MB", "wal_log_hints": "on",
                        "max_wal_senders": 10, "wal_keep_size": "256MB"}},
                },
                "initdb": [{"encoding": "UTF8"}, "data-checksums"],
            },
            "postgresql": {
                "listen": address, "connect_address": address, "data_dir": str(folder / "data"),
                "bin_dir": str(self.programs["bin"]), "pgpass": str(folder / "pgpass"),
                "authentication": {"superuser": login, "replication": login, "rewind": login},
                "parameters": {"unix_socket_directories": str(folder)},
                "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 scram-sha-256",
                           "host replication all 127.0.0.1/32 scram-sha-256"],
                "remove_data_directory_on_diverged_timelines": True,
                "remove_data_directory_on_rewind_failure": True,
            },
        }  # fmt: skip

    def stop(self) -> None:
        for process in self.started:
            for one in tree(process.pid):
                one.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- asking ------------------------------------------------------------------------------------
    def _get(self, address: str) -> Any:
        try:
            with urllib.request.urlopen(address, timeout=2) as answer:
                return json.loads(answer.read())
        except (OSError, urllib.error.URLError, ValueError):
            return None

    def members(self) -> dict[str, Any]:
        """Each member's name and what Patroni says of it, by the first that answers."""
        for port in self.rest.values():
            answer = self._get(f"http://127.0.0.1:{port}/cluster")
            if answer:
                return {one["name"]: one for one in answer["members"]}
        return {}

    def leader(self) -> str | None:
        """The member that is a primary by its own word, and the cluster's leader."""
        for name, member in self.members().items():
            if member["role"] == "leader" and member.get("state") == "running":
                own = self._get(f"http://127.0.0.1:{self.rest[name]}/patroni")
                return name if own and own.get("role") in ("primary", "master") else None
        return None

    def _replicas_stream(self, count: int) -> bool:
        members = self.members().values()
        states = [m for m in members if m.get("state") in ("streaming", "running")]
        wanted = not self.synchronous or any(m["role"] == "sync_standby" for m in states)
        return self.leader() is not None and len(states) == count + 1 and wanted

    def whole(self) -> None:
        """Wait until all three serve again."""
        until(lambda: self._replicas_stream(2), 180, "all three servers", every=0.5)

    def postmaster(self, name: str) -> psutil.Process:
        pid = int((self.folder / name / "data" / "postmaster.pid").read_text().split()[0])
        return psutil.Process(pid)

    def direct(self, name: str) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host="127.0.0.1", port=self.ports[name], user="postgres", password=PASSWORD,
            dbname="postgres", autocommit=True, connect_timeout=5,
        )  # fmt: skip

    # -- doing harm --------------------------------------------------------------------------------
    def kill(self, name: str) -> None:
        """kill -9 of the server: its parent and all its backends."""
        for one in tree(self.postmaster(name).pid):
            one.kill()

    def freeze(self, name: str) -> list[psutil.Process]:
        """The whole host stops: Patroni, the server, and all backends."""
        frozen = tree(self.patroni[name].pid) + tree(self.postmaster(name).pid)
        for one in frozen:
            one.suspend()
        return frozen

    def hold_back_wal(self, name: str) -> int:
        """Its replicas get nothing more; how many senders were stopped."""
        server = tree(self.postmaster(name).pid)
        senders = [one for one in server if "walsender" in " ".join(one.cmdline())]
        for one in senders:
            one.send_signal(signal.SIGSTOP)
        return len(senders)

    def configure(self, **settings: Any) -> None:
        leader = until(self.leader, 60, "a leader")
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.rest[leader]}/config",
            data=json.dumps(settings).encode(),
            method="PATCH",
        )
        urllib.request.urlopen(request, timeout=10).read()

    def switch_over(self) -> None:
        """By patronictl, as an operator does it."""
        old = until(self.leader, 60, "a leader")
        command = [
            sys.executable, "-c", "from patroni.ctl import ctl; ctl()",
            "-c", str(self.folder / old / "patroni.json"),
            "switchover", "failover", "--leader", old, "--force",
        ]  # fmt: skip
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(self.libraries)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)


def tree(pid: int) -> list[psutil.Process]:
    """The process and all below it, those that are gone left out."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def now() -> float:
    return time.monotonic()
