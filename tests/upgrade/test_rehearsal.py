"""Short rehearsals: the promises hold, and a next version that breaks them is reported."""

from __future__ import annotations

import pytest

from tests.upgrade.__main__ import run
from tests.upgrade.versions import BROKEN, BY_NAME, Build

pytestmark = pytest.mark.timeout(600)


def test_an_upgrade_under_load_in_both_orders_and_back() -> None:
    checks = run(30, seed=5)
    assert [check for check in checks if not check.ok] == []


@pytest.mark.parametrize("build", BROKEN, ids=[build.name for build in BROKEN])
def test_a_next_version_that_breaks_the_old_one_is_reported(build: Build) -> None:
    checks = run(9, 6, BY_NAME[build.name], ("the schema first",), drain=5)
    found = {check.name for check in checks if check.found}
    assert found & {"no process met an error of the schema", "no enqueue was refused"}
