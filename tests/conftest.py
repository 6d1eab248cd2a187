"""Fixtures for all tests. The servers are real, and every process that a test starts ends with it.

LEASEWORK_TEST_POSTGRES selects the server: 18 (default), 16 or 15. LEASEWORK_TEST_POOLER=pgbouncer
puts a pooler in front of it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from leasework.config import Settings
from leasework.pg.schema import migrate
from tests.support import postgres as servers
from tests.support.managed import managed
from tests.support.pgbouncer import PgBouncer, program
from tests.support.procs import Processes

pytest_plugins = ["tests.support.no_skips"]
gc.disable()  # until all tests are collected: they are many objects, of which none becomes garbage
hypothesis.settings.register_profile("busy", deadline=None)  # no limit in wall-clock time
hypothesis.settings.load_profile("busy")

TESTS = Path(__file__).parent
EVERYWHERE = (
    "services",
    "e2e/test_cli.py",
    "e2e/test_django_checks",
    "e2e/test_handlers",
    "e2e/test_stacks",
    "e2e/test_supervisor",
    "pg/test_around",
    "pg/test_sync_process",
    "pg/test_bad_input",
    "pg/test_cancels",
    "pg/test_clean_stop",
    "pg/test_closing",
    "pg/test_limits",
    "pg/test_durable",
    "pg/test_link",
    "pg/test_listener",
    "pg/test_lost_connections",
    "pg/test_pool",
    "pg/test_queue",
    "pg/test_results",
    "unit/test_cli",
    "unit/test_config",
    "unit/test_contexts",
    "unit/test_logging",
    "unit/test_model",
    "unit/test_tasks",
    "unit/test_values",
)
"""Beginnings of paths under ``tests``: tests of asyncio, threads, processes and the command line.
They run on every Python that is found. All other tests run on the Python of ``.venv``."""


SLOW = (
    "arch/test_ci",
    "bench",
    "cells/test_load",
    "chaos/test_campaign",
    "detection",
    "docs/test_before",
    "docs/test_deployment",
    "docs/test_django",
    "docs/test_install",
    "docs/test_page_code",
    "docs/test_search",
    "docs/test_steps",
    "docs/test_workshop",
    "durable_fire/test_fire",
    "e2e/test_apscheduler",
    "e2e/test_cli_bench",
    "e2e/test_cli_verbs",
    "e2e/test_demo",
    "e2e/test_distributions",
    "e2e/test_django.py",
    "e2e/test_encodings",
    "e2e/test_example",
    "e2e/test_fault",
    "e2e/test_flask",
    "e2e/test_frameworks",
    "e2e/test_managed",
    "e2e/test_next_python",
    "e2e/test_odd_settings",
    "e2e/test_rolling",
    "e2e/test_slow_link",
    "e2e/test_truth",
    "e2e/test_web",
    "hosts",
    "pg/test_pytest_plugin",
    "limits_fire/test_fire",
    "sim/test_simulation",
    "spec",
    "unit/test_types",
    "upgrade",
    "web/test_alerts",
    "web/test_attacks",
    "web/test_browser",
    "web/test_demo_show",
    "web/test_figures",
    "web/test_operator_tasks",
    "web/test_proxies",
)
"""Beginnings of paths under ``tests``: models, benchmarks, campaigns, browsers, the steps of pages,
and whole servers with their frameworks. ``make test`` leaves them to ``make test-slow``."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import only the files with tests to run, because importing all of them takes seconds."""
    wanted = config.option.markexpr or ""
    if not collection_path.is_file() or collection_path.name == "conftest.py":
        return None
    if "everywhere" in wanted and not _begins(collection_path, EVERYWHERE):
        return True
    if wanted.endswith("not slow") and _begins(collection_path, SLOW):
        return True
    return True if wanted == "slow" and not _begins(collection_path, SLOW) else None


def _begins(path: Path, beginnings: tuple[str, ...]) -> bool:
    return path.relative_to(TESTS).as_posix().startswith(beginnings)


LONGEST = [TESTS / "spec" / "test_tla.py", TESTS / "docs" / "test_install.py"]
"""They come first: a file is one process's work, and at the end the other processes would wait."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path not in LONGEST)
    for item in items:
        for mark, beginnings in (("everywhere", EVERYWHERE), ("slow", SLOW)):
            if _begins(item.path, beginnings):
                item.add_marker(mark)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """The server that all tests share: ``.dsn``, ``.pid``, ``.data_dir``. Do not stop it. A test
    that harms its server uses ``own_postgres``."""
    with servers.server() as running:
        yield running


@pytest.fixture(scope="session")
def admin(postgres: Any) -> Iterator[psycopg.Connection[Any]]:
    """The connection that creates and drops the tests' databases."""
    with servers.admin_of(postgres.dsn) as connection:
        yield connection


@pytest.fixture
def own_postgres() -> Iterator[Callable[..., Any]]:
    """``own_postgres(version=None, settings=None)`` starts a server for this test alone, which may
    stop, kill or fill it, or needs other settings."""
    with ExitStack() as stack:
        yield lambda version=None, settings=None: stack.enter_context(
            servers.server(version, settings)
        )


@pytest.fixture(scope="session")
def template(postgres: Any) -> Iterator[str]:
    """The name of the template database with leasework's schema."""
    with servers.database(postgres.dsn) as dsn:
        asyncio.run(migrate.apply(Settings(dsn=dsn)))
        yield conninfo_to_dict(dsn)["dbname"]


@pytest.fixture
def direct_dsn(
    postgres: Any, admin: psycopg.Connection[Any], request: pytest.FixtureRequest
) -> Iterator[str]:
    """A new database without a pooler. It is empty, unless the test uses ``migrated``. It is
    dropped after the test."""
    migrated = "migrated" in request.fixturenames
    template = request.getfixturevalue("template") if migrated else None
    with servers.database(postgres.dsn, template=template, admin=admin) as dsn:
        yield dsn


@pytest.fixture
def migrated(direct_dsn: str) -> str:
    """``direct_dsn`` with leasework's schema, copied from ``template``: that is much faster than to
    apply the migrations."""
    return direct_dsn


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
    """``direct_dsn`` as a strict managed service offers it: see tests/support/managed.py."""
    if program() is None:
        pytest.skip("pgbouncer is not installed")
    with managed(direct_dsn) as dsn:
        yield dsn


@pytest.fixture
def dsn(request: pytest.FixtureRequest, direct_dsn: str) -> str:
    """The database under test: ``direct_dsn``, or the same database through the selected pooler."""
    pooler = os.environ.get("LEASEWORK_TEST_POOLER", "")
    if not pooler:
        return direct_dsn
    if pooler != "pgbouncer":
        pytest.fail(f"LEASEWORK_TEST_POOLER={pooler}: only pgbouncer is known")
    bouncer: PgBouncer = request.getfixturevalue("pgbouncer")
    return bouncer.dsn


_processes = pytest.StashKey[Processes]()


@pytest.fixture
def procs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Processes]:
    """Starts real Python processes. Their logs are in ``tmp_path``, and in the report of a
    failure."""
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
    """Turn off tracing in other tests, because OpenTelemetry keeps an SDK until the process
    ends."""
    from leasework.jobs import tracing

    monkeypatch.setattr(tracing, "_set_up", False)
    if request.path.name != "test_tracing.py":
        monkeypatch.setattr(tracing, "traces", lambda: False)


@pytest.fixture(autouse=True)
def leaseworks_logger_is_left_as_it_was() -> Iterator[None]:
    """Fail a test that changes the logger's level and does not restore it, because later tests in
    the same process would fail."""
    logger = logging.getLogger("leasework")
    before = logger.level, logger.propagate, logger.disabled
    yield
    after = logger.level, logger.propagate, logger.disabled
    logger.level, logger.propagate, logger.disabled = before
    assert after == before, "level, propagate, disabled"
