"""The broken builds still break something: what they replace is there."""

from __future__ import annotations

import psycopg
import pytest

from leasework.pg import sql
from tests.limits_fire.builds import BUILDS, Build, apply_to_function


@pytest.mark.parametrize("build", BUILDS, ids=[build.name for build in BUILDS])
def test_what_a_build_replaces_is_there(build: Build, migrated: str) -> None:
    assert build.function or build.sql
    with psycopg.connect(migrated) as connection:
        apply_to_function(build.name, connection)
        connection.rollback()
    for name, pairs in build.sql:
        for old, _ in pairs:
            assert old in sql._texts("leasework.pg")[name]
