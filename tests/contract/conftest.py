"""Each contract test runs on the simulated Store and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.world import World, real, simulated


@pytest_asyncio.fixture(params=["sim", "pg"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "sim":
        async with simulated() as made:
            yield made
        return
    dsn, direct = request.getfixturevalue("dsn"), request.getfixturevalue("direct_dsn")
    async with real(dsn, direct) as made:
        yield made
