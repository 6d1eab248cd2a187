"""The Django project ``tests/e2e/apps/shop``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.procs import Process, Processes

HAS_TASKS = importlib.util.find_spec("django.tasks") is not None
SHOP = "tests.e2e.apps.shop"
Django = Callable[..., Process]


@pytest.fixture
def variables(direct_dsn: str) -> dict[str, str]:
    """Where the database is, in libpq's environment variables. It is empty."""
    given = conninfo_to_dict(direct_dsn)
    names = {"dbname": "PGDATABASE", "host": "PGHOST", "port": "PGPORT", "user": "PGUSER"}
    found = {variable: str(given[name]) for name, variable in names.items() if given.get(name)}
    # the tests' role may be named as the schema, which would then be the first on the search path
    return {**found, "PGOPTIONS": "-c search_path=public"}


@pytest.fixture
def django(procs: Processes, variables: dict[str, str], tmp_path: Path) -> Django:
    """``django("migrate", SHOP_LEASEWORK="…")`` runs a management command of the project."""
    journal = str(tmp_path / "journal")
    env = {**variables, "DJANGO_SETTINGS_MODULE": f"{SHOP}.settings", "JOURNAL": journal}

    def run(*arguments: str, **more: str) -> Process:
        return procs.start("-m", "django", *arguments, name=arguments[0], env={**env, **more})

    return run


def succeeded(process: Process, seconds: float = 60) -> str:
    assert process.wait(seconds) == 0, process.output
    return process.output
