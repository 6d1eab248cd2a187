"""The demo's database: that of LEASEWORK_DSN, or a PostgreSQL of its own."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from leasework.embedded import EmbeddedServer, find_binaries, reaper
from leasework.embedded.folder import default_folder
from leasework.env import Env
from leasework_lab.demo.tables import SCHEMA

_PREFIX = "demo-"
_REAL = "To use your own database, set LEASEWORK_DSN=postgresql://…"
_REAPER_SECONDS = 3.0


@dataclass
class DemoDatabase:
    """``title`` and ``hint`` are for people and contain no password."""

    dsn: str
    title: str
    hint: str
    server: EmbeddedServer | None = None

    @classmethod
    def open(cls, env: Env) -> DemoDatabase:
        """The database of LEASEWORK_DSN, or a fresh server in a folder of its own.

        Waits a second or two for the server. Raises EmbeddedError.
        """
        dsn = os.environ.get("LEASEWORK_DSN", "")
        if dsn and dsn != "embedded":
            return cls(dsn, f"from LEASEWORK_DSN, schema {SCHEMA}", "")
        home = default_folder(find_binaries().major).parent
        _remove_leftovers(home)
        folder = home / f"{_PREFIX}{env.pid}-{env.new_id().hex[-8:]}"
        try:
            server = EmbeddedServer.start(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        title = f"PostgreSQL {server.version}, started for this demo"
        return cls(server.dsn, title, _REAL, server)

    @property
    def can_cut(self) -> bool:
        """Whether connections can go through a proxy. A user's own database may require TLS."""
        return self.server is not None

    def close(self) -> None:
        """Stop our own server and remove its folder."""
        if self.server is None:
            return
        folder = self.server.data_dir
        self.server.close()
        for _ in range(int(_REAPER_SECONDS / reaper.POLL_SECONDS)):
            if reaper.is_free(folder / reaper.REAPER_LOCK):
                break
            time.sleep(reaper.POLL_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers(home: Path) -> None:
    """Remove folders of killed demos: their process is gone and nobody holds a lock there."""
    for folder in home.glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        locks = (reaper.USERS_LOCK, reaper.SERVER_LOCK, reaper.REAPER_LOCK)
        try:
            if not _is_alive(pid) and all(reaper.is_free(folder / lock) for lock in locks):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # belongs to another account


def _is_alive(pid: str) -> bool:
    if not pid.isdigit():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
