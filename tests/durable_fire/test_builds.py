"""The broken builds still break something: what they replace is there."""

from __future__ import annotations

import psycopg
import pytest

from leasework.pg import sql
from tests.durable_fire.builds import BUILDS, Build, apply_to_database
from tests.limits_fire.record import SETUP


@pytest.mark.parametrize("build", BUILDS, ids=[build.name for build in BUILDS])
def test_what_a_build_replaces_is_there(build: Build, migrated: str) -> None:
    assert build.functions or build.sql or build.script or build.patch
    with psycopg.connect(migrated) as connection:
        connection.execute(SETUP.encode())
        apply_to_database(build.name, connection)
        connection.rollback()
    for name, pairs in build.sql:
        for old, _ in pairs:
            assert old in sql._texts("leasework.pg")[name]
