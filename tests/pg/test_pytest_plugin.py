"""The pytest plugin, in projects of users: real runs of pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
import pytest

SHOP = """
from leasework import App

app = App("postgresql://nobody@127.0.0.1:1/production")


@app.task(name="send_mail")
async def send_mail(to: str) -> str:
    return f"sent to {to}"
"""

ASYNC = """
import pytest
from leasework.testing import assert_enqueued, drain
from shop import app, send_mail

pytestmark = pytest.mark.MARK


@pytest.mark.parametrize("n", range(3))
async def test_a_mail_is_sent(leasework_app, n):
    assert leasework_app is app
    assert await app.jobs() == []           # nothing of the test before
    await send_mail.enqueue("kim")
    await assert_enqueued(app, send_mail, to="kim")
    [record] = await drain(app)
    assert record.result == "sent to kim"
"""

SYNC = """
import asyncio
from leasework.testing.sync import assert_enqueued, drain
from shop import app, send_mail
from sqlalchemy import create_engine, make_url, text


def test_without_a_loop(leasework_app):
    assert leasework_app.sync.jobs() == []
    leasework_app.sync.enqueue(send_mail.job("kim"))
    assert_enqueued(leasework_app, send_mail, to="kim")
    assert [record.result for record in drain(leasework_app)] == ["sent to kim"]


def test_a_loop_of_its_own(leasework_app):
    assert asyncio.run(leasework_app.jobs()) == leasework_app.sync.jobs() == []


def test_tables_of_the_template(leasework_dsn):
    assert leasework_dsn.startswith("postgresql://")
    engine = create_engine(make_url(leasework_dsn).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        assert connection.execute(text("select count(*) from account, leasework.job")).scalar() == 0
    engine.dispose()


def test_the_app_has_its_own_settings_again():
    assert app.settings.dsn.endswith("/production")


def test_a_second_session(leasework_dsn, rival_session):
    assert rival_session(leasework_dsn).execute("select 1") == [(1,)]
"""

CONFTEST = """
import psycopg, pytest

@pytest.fixture(scope="session")
def leasework_template(leasework_template):
    with psycopg.connect(leasework_template) as connection:
        connection.execute("create table account (id int)")
    return leasework_template

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


def run(folder: Path, server: str, *arguments: str, ini: str = "leasework_app = shop:app") -> str:
    """Run pytest on the project in ``folder``, and return what it says."""
    (folder / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    environ = {**os.environ, "LEASEWORK_TEST_DSN": server, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=90,
    )
    return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of an application with tests."""
    for name, text in (("shop", SHOP), ("conftest", CONFTEST), ("test_sync", SYNC)):
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def left_over(server: str) -> int:
    with psycopg.connect(server) as connection:
        found = connection.execute(
            "select count(*) from pg_database where datname like 'leasework_test_%'"
        ).fetchone()
        assert found
        return int(found[0])


def test_each_test_has_a_database_with_pytest_asyncio(project: Path, postgres: Any) -> None:
    (project / "test_async.py").write_text(ASYNC.replace("MARK", "asyncio"))
    said = run(project, postgres.dsn, "-p", "no:anyio")
    assert "8 passed" in said, said
    assert left_over(postgres.dsn) == 0


def test_each_test_has_a_database_with_anyio_in_several_processes(
    project: Path, postgres: Any
) -> None:
    (project / "test_async.py").write_text(ASYNC.replace("MARK", "anyio"))
    said = run(project, postgres.dsn, "-p", "no:asyncio", "-n", "2")
    assert "8 passed" in said, said
    assert left_over(postgres.dsn) == 0


def test_the_set_up_of_a_test_copies_one_database(
    project: Path, own_postgres: Callable[..., Any]
) -> None:
    """It takes most of the time of a short test. With ``-s``, this prints how much it is."""
    twenty = "import pytest\n\n@pytest.mark.parametrize('n', range(20))\n"
    (project / "test_set_up.py").write_text(f"{twenty}def test_it(leasework_app, n): ...")
    server = own_postgres(settings={"log_statement": "ddl"})
    said = run(project, server.dsn, "test_set_up.py", "--durations=0", "-vv")
    assert "20 passed" in said, said
    sent = (server.data_dir / "postgres.log").read_text()
    assert sent.count("statement: create database") == 21
    assert len(re.findall("statement: create database .* template", sent)) == 20
    assert sent.count("drop database") == 21
    assert sent.count("create table leasework.job (") == 1, "the migrations run once"
    # the first set-up also makes the template
    taken = sorted(float(seconds) for seconds in re.findall(r"([\d.]+)s setup", said))
    print(f"\nthe set-up of a test takes {median(taken):.2f} s (median of {len(taken)})")


def test_without_a_plugin_for_event_loops_plain_tests_work(project: Path, postgres: Any) -> None:
    said = run(project, postgres.dsn, "-p", "no:asyncio", "-p", "no:anyio")
    assert "5 passed" in said, said


@pytest.mark.parametrize(
    ("ini", "says"),
    [
        ("", r"pytest.ini, below [pytest]: leasework_app = shop:app."),
        ("leasework_app = shop:ap", "leasework_app = shop:ap: module shop has no 'ap'"),
        (
            "leasework_app = shp:app",
            "leasework_app = shp:app: there is no module 'shp'. Got: shp. Looked in",
        ),
    ],
)
def test_an_application_that_is_not_found_is_a_clear_error(
    project: Path, postgres: Any, ini: str, says: str
) -> None:
    said = run(project, postgres.dsn, "-k", "without_a_loop", ini=ini)
    assert says in " ".join(said.split()) and "1 error" in said, said
    assert "During handling" not in said
