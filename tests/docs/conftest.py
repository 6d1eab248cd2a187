"""Provides a server with the schema, as the readers of the pages have one."""

from __future__ import annotations

import asyncio
import os

import pytest

from leasehold.config import Settings
from leasehold.pg.schema import migrate

# leases that expire in real time take too long for every run: make workshop
collect_ignore = [] if os.environ.get("LEASEHOLD_LONG") else ["test_workshop.py"]


@pytest.fixture
def migrated(direct_dsn: str) -> str:
    asyncio.run(migrate.apply(Settings(dsn=direct_dsn)))
    return direct_dsn
