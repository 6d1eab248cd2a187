"""``make hosts``: every direction, for a host that leads and one that does not, and flapping links.

Not of the default suite: a few minutes, one after the other.
"""

from __future__ import annotations

import pytest

from tests.hosts.network import why_not
from tests.hosts.scenes import link_flaps, link_lost

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def a_machine_that_can() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.mark.parametrize("leads", [True, False], ids=["leads", "follows"])
@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_a_host_that_loses_its_link(direction: str, leads: bool) -> None:
    link_lost(direction, leads=leads)


def test_a_link_that_comes_and_goes() -> None:
    link_flaps(6)
