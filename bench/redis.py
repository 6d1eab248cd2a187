"""A redis of our own, for celery: a unix socket, an append-only file synced each second."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.process import SideFailed

SETTINGS = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}


def program() -> list[str]:
    """To start one. Raises SideFailed. Debian's redis-tools has the server's program under
    another name, and no service."""
    server, check = shutil.which("redis-server"), shutil.which("redis-check-rdb")
    if not server and not check:
        raise SideFailed("no redis: apt-get install redis-tools")
    return [server] if server else ["bash", "-c", f'exec -a redis-server {check} "$@"', "redis"]


@contextmanager
def redis() -> Iterator[str]:
    """The path of its socket."""
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as folder:
        path = Path(folder) / "redis.sock"
        options = [word for k, v in SETTINGS.items() for word in (f"--{k}", v)]
        command = [*program(), "--port", "0", "--unixsocket", str(path), "--dir", folder]
        with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL) as process:
            try:
                limit = time.monotonic() + 20
                while not path.exists():
                    if process.poll() is not None or time.monotonic() > limit:
                        raise SideFailed("redis does not start")
                    time.sleep(0.02)
                yield str(path)
            finally:
                with suppress(ProcessLookupError):
                    process.terminate()
                process.wait(20)
