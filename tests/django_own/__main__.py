"""``make django-own``: download Django's source, and run its tests of task backends.

It needs a Python with Django 6.0 or later.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import django
from psycopg.conninfo import conninfo_to_dict

from tests.support import postgres as servers

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "django"


def source() -> Path:
    """The folder ``tests`` of the source of the installed Django."""
    name = f"django-{django.__version__}"
    if not (BUILD / name).exists():
        options = ["--no-deps", "--no-binary", ":all:", "--dest", str(BUILD)]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", *options]
        subprocess.run([*pip, f"django=={django.__version__}"], check=True)
        with tarfile.open(BUILD / f"{name}.tar.gz") as archive:
            wanted = [m for m in archive if m.name.startswith(f"{name}/tests/tasks/")]
            archive.extractall(BUILD, wanted, filter="data")
    return BUILD / name / "tests"


def main() -> int:
    if importlib.util.find_spec("django.tasks") is None:
        print(
            f"Django {django.__version__} has no django.tasks. Run: make django-own VENV=.venv-3.12"
        )
        return 2
    with servers.server() as server, servers.database(server.dsn) as dsn:
        given = conninfo_to_dict(dsn)
        names = {"dbname": "PGDATABASE", "host": "PGHOST", "port": "PGPORT", "user": "PGUSER"}
        where = {variable: str(given[name]) for name, variable in names.items() if given.get(name)}
        env = {
            **os.environ,
            **where,
            "PGOPTIONS": "-c search_path=public",
            "DJANGO_SETTINGS_MODULE": "tests.e2e.apps.shop.settings",
            "SHOP_ATTEMPTS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(source())]),
        }
        command = [sys.executable, "-m", "django", "test", "tests.e2e.apps.shop.djangos_own"]
        return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
