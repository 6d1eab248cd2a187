"""A short run: one server of three is killed, and the others go on."""

from __future__ import annotations

import pytest

from tests.cells.__main__ import run

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("shared", [False, True], ids=["workers of each cell", "one worker"])
def test_the_other_cells_go_on_while_one_server_is_away(shared: bool) -> None:
    checks = run(36, shared=shared)
    assert [check for check in checks if not check.ok] == []
