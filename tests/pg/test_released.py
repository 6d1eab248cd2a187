"""What a version has released stays: its migrations as they were, and what it stored in use."""

from __future__ import annotations

import asyncio
import json
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from leasework.config import Settings
from leasework.pg.schema import migrate
from leasework.pg.sql import for_schema
from scripts import freeze_schema
from tests.arch import tree
from tests.support import postgres as servers
from tests.upgrade.sample import Sample

RELEASED = sorted(freeze_schema.FOLDER.glob("*.sql"))
MIGRATIONS = "leasework/pg/sql/migrations"


def upgraded(dsn: str, fixture: str) -> None:
    """Load a fixture into an empty database, upgrade it, and run what is in it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(fixture.encode())
    settings = Settings(dsn=dsn)
    asyncio.run(migrate.apply(settings))
    assert asyncio.run(migrate.verify(settings)) == []
    asyncio.run(Sample(dsn).check())


def test_what_a_released_version_stored_works_on(postgres: Any) -> None:
    for file in RELEASED:
        with servers.database(postgres.dsn) as dsn:
            upgraded(dsn, file.read_text("utf-8"))


def test_what_this_version_stores_can_be_frozen(postgres: Any, direct_dsn: str) -> None:
    with servers.database(postgres.dsn) as filled:
        fixture = freeze_schema.frozen(filled)
    assert changed_since(fixture) == []
    upgraded(direct_dsn, aged(fixture))


def aged(fixture: str) -> str:
    """The fixture as it would be, had it been written a year ago."""
    today, old = datetime.now(UTC).date(), fixture
    for day in (today, today - timedelta(days=1)):
        old = old.replace(f'"{day}T', f'"{day - timedelta(days=365)}T')
    assert old != fixture, "its moments are written in UTC"
    return old


def changed_since(fixture: str) -> list[str]:
    """The migrations of a fixture whose text is another one now."""
    number = json.loads(fixture.partition("\n")[0].removeprefix("-- "))["migrations"]
    then = [m for m in migrate.MIGRATIONS if m.number <= number]
    assert len(then) == number
    return [m.name for m in then if for_schema(m.text, "leasework").rstrip() not in fixture]


def test_a_released_migration_never_changes() -> None:
    for file in RELEASED:
        changed = changed_since(file.read_text("utf-8"))
        assert changed == [], f"{file.stem} has released them: write a new migration instead"


def test_a_changed_migration_is_found() -> None:
    fixture = '-- {"migrations": 1}\n' + migrate.script("leasework")
    assert changed_since(fixture) == []
    assert changed_since(fixture.replace("create table", "create  table", 1)) == ["initial"]


def test_each_tag_has_its_fixture_and_the_migrations_and_fixtures_of_then() -> None:
    def git(*words: str) -> str:
        return subprocess.check_output(["git", *words], cwd=tree.ROOT, text=True)

    for tag in git("tag", "--list", "v*").split():
        fixtures = "tests/upgrade/released"
        then = git("ls-tree", "-r", "--name-only", tag, MIGRATIONS, fixtures).split()
        assert any(name.startswith(MIGRATIONS) for name in then), tag
        for name in then:
            now = (tree.ROOT / name).read_text("utf-8")
            assert now == git("show", f"{tag}:{name}"), f"{name} has changed since {tag}"
