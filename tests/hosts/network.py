"""Hosts as network namespaces: each with a cable (a veth pair) to the one in the middle, in which a
PostgreSQL listens; nftables in a host drops what goes out, what comes in, or both.

Nothing of the machine's own network is touched: every end of every cable is in a namespace of ours.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psycopg
from leasework_lab.server import find_programs, let_pass, unprivileged

from tests.support.no_skips import CANNOT
from tests.support.wait import until

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_numbers = itertools.count(1)


def run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, check=check, capture_output=True, text=True, timeout=60, env={"PATH": PATH}
    )


def why_not() -> str:
    """Why this machine cannot have such hosts; empty when it can."""
    if os.geteuid() != 0:
        return f"{CANNOT}network namespaces need root"
    for program in ("ip", "nft"):
        if shutil.which(program, path=PATH) is None:
            # Debian has them, and scripts/test-setup installs them: then their absence is a fault
            return f"{program} is not installed"
    name = f"lhprobe{os.getpid()}"
    commands = (
        ["ip", "netns", "add", name],
        ["ip", "-n", name, "link", "add", "one", "type", "veth", "peer", "name", "two"],
        ["ip", "netns", "exec", name, "nft", "add table inet probe"],
    )
    try:
        for command in commands:
            tried = run(*command, check=False)
            if tried.returncode != 0:
                return f"{CANNOT}{' '.join(command[-3:])}: {tried.stderr.strip()}"
    finally:
        run("ip", "netns", "del", name, check=False)
    return ""


class Host:
    """A namespace with one cable. ``address`` is the host's own."""

    def __init__(self, name: str, middle: str, number: int) -> None:
        self.name = name
        self.address, other = f"10.77.{number}.2", f"10.77.{number}.1"
        cable = f"c{number}"
        run("ip", "netns", "add", name)
        run("ip", "-n", middle, "link", "add", cable, "type", "veth",
            "peer", "name", "eth0", "netns", name)  # fmt: skip
        for where, link, own in ((middle, cable, other), (name, "eth0", self.address)):
            run("ip", "-n", where, "addr", "add", f"{own}/30", "dev", link)
            run("ip", "-n", where, "link", "set", link, "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", name, "route", "add", "default", "via", other)

    def _nft(self, *commands: str) -> None:
        for command in commands:
            run("ip", "netns", "exec", self.name, "nft", command)

    def cut(self, direction: str) -> None:
        """``out``: what it sends is lost; ``in``: what is sent to it is lost; ``both``."""
        hooks = {"out": ["output"], "in": ["input"], "both": ["output", "input"]}[direction]
        self._nft("add table inet cut")
        for hook in hooks:
            self._nft(
                f"add chain inet cut {hook} {{ type filter hook {hook} priority 0; policy drop; }}"
            )

    def mend(self) -> None:
        self._nft("delete table inet cut")

    def command(self, *command: str) -> Sequence[str]:
        """``command``, run on this host."""
        return [shutil.which("ip", path=PATH) or "ip", "netns", "exec", self.name, *command]


class Network:
    """``hosts`` around a server: ``.dsn`` for the test itself (a socket), ``.dsn_from_hosts``."""

    MIDDLE = "10.77.250.1"

    def __init__(self, *names: str) -> None:
        own = f"lh{secrets.token_hex(3)}"
        self.middle = f"{own}m"
        self.hosts: dict[str, Host] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="lh-hosts-"))
        self.folder.chmod(0o711)
        self.server: subprocess.Popen[bytes] | None = None
        try:
            run("ip", "netns", "add", self.middle)
            run("ip", "-n", self.middle, "link", "set", "lo", "up")
            run("ip", "-n", self.middle, "addr", "add", f"{self.MIDDLE}/32", "dev", "lo")
            for number, name in enumerate(names, 1):
                self.hosts[name] = Host(f"{own}{name}", self.middle, number)
            self._start_server()
        except BaseException:
            self.close()
            raise

    def _start_server(self) -> None:
        who = unprivileged()
        programs, _ = find_programs()
        let_pass(programs / "postgres")
        home = self.folder / "server"
        home.mkdir(mode=0o711)
        os.chown(home, who["user"], who["group"])
        data, log = home / "data", home / "log"
        plain = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8"],
            check=True, capture_output=True, cwd=home, env=plain, timeout=120, **who,
        )  # fmt: skip
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.77.0.0/16 trust\n")
        command = [
            "ip", "netns", "exec", self.middle, "setpriv", f"--reuid={who['user']}",
            f"--regid={who['group']}", "--clear-groups", str(programs / "postgres"),
            "-D", str(data),
            "-c", f"listen_addresses={self.MIDDLE}", "-c", f"unix_socket_directories={home}",
            "-c", "shared_buffers=16MB", "-c", "max_connections=60",
        ]  # fmt: skip
        with log.open("wb") as out:
            self.server = subprocess.Popen(
                command, cwd=home, env={"PATH": PATH, "LC_ALL": "C"}, stdout=out, stderr=out
            )
        self.dsn = f"host={home} user=postgres dbname=postgres"
        self.dsn_from_hosts = (
            f"host={self.MIDDLE} user=postgres dbname=postgres target_session_attrs=read-write"
        )

        def answers() -> bool:
            psycopg.connect(self.dsn, connect_timeout=2).close()
            return True

        until(answers, 60, "the server in the middle", ignoring=(psycopg.Error,))

    def close(self) -> None:
        if self.server:
            self.server.send_signal(3)  # immediate: its data goes away anyway
            self.server.wait(30)
        for name in [*(host.name for host in self.hosts.values()), self.middle]:
            run("ip", "netns", "del", name, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
