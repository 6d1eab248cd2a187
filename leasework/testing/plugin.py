"""The pytest plugin: a database and the application for each test. Every run of pytest imports it
where leasework is installed, so it imports only pytest at its top."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from leasework.app import App
    from leasework.testing.databases import RivalSession

OPTION = "leasework_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(OPTION, "the application for the fixture leasework_app, as MODULE:APP")


@pytest.fixture(scope="session")
def _leasework_application(pytestconfig: pytest.Config) -> App | None:
    """The App that the option names; if it names a function, what its one call returns."""
    target = pytestconfig.getini(OPTION)
    if not target:
        return None
    from leasework.app.load import load_app
    from leasework.errors import ConfigError

    try:
        return load_app(target)
    except ConfigError as error:
        why = str(error)
    pytest.fail(f"{OPTION} = {target}: {why}", pytrace=False)


@pytest.fixture(scope="session")
def leasework_template(_leasework_application: App | None) -> Iterator[str]:
    """The DSN of the database that each test gets a copy of. Override it to add your own tables::

    @pytest.fixture(scope="session")
    def leasework_template(leasework_template):
        create_my_tables(leasework_template)     # and close its connections
        return leasework_template
    """
    from leasework.testing import postgres_dsn

    schema = _leasework_application.settings.schema if _leasework_application else "leasework"
    with postgres_dsn(schema=schema) as dsn:
        yield dsn


@pytest.fixture
def leasework_dsn(leasework_template: str) -> Iterator[str]:
    """The DSN of a fresh database with leasework's schema, a ``postgresql://`` URL."""
    from leasework.testing import postgres_dsn

    with postgres_dsn(template=leasework_template) as dsn:
        yield dsn


@pytest.fixture
def leasework_app(
    request: pytest.FixtureRequest, _leasework_application: App | None
) -> Iterator[App]:
    """The application that the option ``leasework_app`` names, on a fresh database. It is closed
    after the test, and then has its own settings again."""
    if _leasework_application is None:
        pytest.fail(
            f"the fixture leasework_app does not know your application. Name it as MODULE:APP in "
            f"pytest.ini, below [pytest]: {OPTION} = shop:app. In pyproject.toml, below "
            f'[tool.pytest.ini_options]: {OPTION} = "shop:app"',
            pytrace=False,
        )
    from leasework.testing.databases import connected_to

    with connected_to(_leasework_application, request.getfixturevalue("leasework_dsn")) as app:
        yield app


@pytest.fixture
def rival_session() -> Iterator[Callable[..., RivalSession]]:
    """``rival_session(app_or_dsn)`` opens a second real session, which ends with the test."""
    from leasework.testing import open_rival_session

    with ExitStack() as stack:

        def make(database: App | str) -> RivalSession:
            return stack.enter_context(open_rival_session(database))

        yield make
