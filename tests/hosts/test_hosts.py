"""A host that loses its link in one direction; the other directions are in ``make hosts``."""

from __future__ import annotations

import pytest

from tests.hosts.network import why_not
from tests.hosts.scenes import link_lost


@pytest.fixture(autouse=True)
def a_machine_that_can() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.mark.timeout(200)
def test_a_leading_host_that_hears_nothing_fences_itself_before_the_other_acts() -> None:
    """Its requests still arrive: the database goes on to hear from it, and it does not know."""
    link_lost("in", leads=True)
