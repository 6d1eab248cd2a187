"""Fixtures for every test. Servers are real; what starts a process also ends it.

Which server: LEASEHOLD_TEST_POSTGRES=18 (default), 16, 15. Behind a pooler:
LEASEHOLD_TEST_POOLER=pgbouncer.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from leasehold.config import Settings
from leasehold.pg.schema import migrate
from tests.support import postgres as servers
from tests.support.managed import managed
from tests.support.pgbouncer import PgBouncer, program
from tests.support.procs import Processes

pytest_plugins = ["tests.support.no_skips"]

TESTS = Path(__file__).parent
EVERYWHERE = (
    "arch/test_ci",
    "services",
    "e2e/test_cli.py",
    "e2e/test_cli_verbs",
    "e2e/test_fault_kill",
    "e2e/test_handlers",
    "e2e/test_stacks",
    "e2e/test_supervisor",
    "pg/test_bad_input",
    "pg/test_cancels",
    "pg/test_clean_stop",
    "pg/test_closing",
    "pg/test_link",
    "pg/test_listener",
    "pg/test_lost_connections",
    "pg/test_pool",
    "pg/test_queue",
    "pg/test_results",
    "unit/test_cli",
    "unit/test_config",
    "unit/test_logging",
    "unit/test_model",
    "unit/test_tasks",
)
"""What touches asyncio, threads, processes and the command line, as the paths below ``tests``
begin: it is tested on every Python that is found. All else is tested on that of ``.venv``."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import only the files that have tests to run: importing all of them takes seconds."""
    if config.option.markexpr != "everywhere" or not collection_path.is_file():
        return None
    if collection_path.name == "conftest.py" or _is_everywhere(collection_path):
        return None
    return True


def _is_everywhere(path: Path) -> bool:
    return path.relative_to(TESTS).as_posix().startswith(EVERYWHERE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_everywhere(item.path):
            item.add_marker("everywhere")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """The server that all tests share: ``.dsn``, ``.pid``, ``.data_dir``. Do not stop it; what
    does harm to a server takes ``own_postgres``."""
    with servers.server() as running:
        yield running


@pytest.fixture
def own_postgres() -> Iterator[Callable[..., Any]]:
    """``own_postgres(version=None, settings=None)`` starts a server for this test alone, to stop,
    kill, fill, or with other settings."""
    with ExitStack() as stack:
        yield lambda version=None, settings=None: stack.enter_context(
            servers.server(version, settings)
        )


APPLY_THE_SCHEMA = {"migrated", "database", "two"}
"""Fixtures that begin with the schema: their database is copied from one that has it, which takes a
fraction of the time."""


@pytest.fixture(scope="session")
def template(postgres: Any) -> Iterator[str]:
    """The name of a database with leasehold's schema, to copy."""
    with servers.database(postgres.dsn) as dsn:
        asyncio.run(migrate.apply(Settings(dsn=dsn)))
        yield conninfo_to_dict(dsn)["dbname"]


@pytest.fixture
def direct_dsn(postgres: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh database, without a pooler in between: empty, unless a fixture of
    ``APPLY_THE_SCHEMA`` is in use. Dropped after the test."""
    copied = APPLY_THE_SCHEMA.intersection(request.fixturenames)
    template = request.getfixturevalue("template") if copied else None
    with servers.database(postgres.dsn, template=template) as dsn:
        yield dsn


@pytest.fixture
def pgbouncer(direct_dsn: str) -> Iterator[PgBouncer]:
    """A pgbouncer in transaction mode in front of ``direct_dsn``: ``.dsn``, ``.admin(…)``."""
    if program() is None:
        pytest.skip("pgbouncer is not installed")
    bouncer = PgBouncer(direct_dsn)
    try:
        yield bouncer
    finally:
        bouncer.close()


@pytest.fixture
def managed_dsn(direct_dsn: str) -> Iterator[str]:
    """``direct_dsn`` as a strict managed service gives it; see tests/support/managed.py."""
    if program() is None:
        pytest.skip("pgbouncer is not installed")
    with managed(direct_dsn) as dsn:
        yield dsn


@pytest.fixture
def dsn(request: pytest.FixtureRequest, direct_dsn: str) -> str:
    """The database under test: ``direct_dsn``, or the way to it through the chosen pooler."""
    pooler = os.environ.get("LEASEHOLD_TEST_POOLER", "")
    if not pooler:
        return direct_dsn
    if pooler != "pgbouncer":
        pytest.fail(f"LEASEHOLD_TEST_POOLER={pooler}: only pgbouncer is known")
    bouncer: PgBouncer = request.getfixturevalue("pgbouncer")
    return bouncer.dsn


_processes = pytest.StashKey[Processes]()


@pytest.fixture
def procs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Processes]:
    """Starts real Python processes; their logs are in ``tmp_path`` and in a failure's report."""
    with Processes(tmp_path) as started:
        request.node.stash[_processes] = started
        yield started


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    started = item.stash.get(_processes, None)
    if report.failed and report.when == "call" and started is not None and started.all:
        report.sections.append(("processes", started.report()))
    return report


@pytest.fixture(autouse=True)
def no_tracing_of_another_test(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """OpenTelemetry keeps an SDK for as long as the process lives."""
    from leasehold.jobs import tracing

    monkeypatch.setattr(tracing, "_set_up", False)
    if request.path.name != "test_tracing.py":
        monkeypatch.setattr(tracing, "traces", lambda: False)


@pytest.fixture(autouse=True)
def leaseholds_logger_is_left_as_it_was() -> Iterator[None]:
    """A test that silences it for good makes another one fail, in the same process and later."""
    logger = logging.getLogger("leasehold")
    before = logger.level, logger.propagate, logger.disabled
    yield
    after = logger.level, logger.propagate, logger.disabled
    logger.level, logger.propagate, logger.disabled = before
    assert after == before, "level, propagate, disabled"
