"""Provides a database with the schema, and one session on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from leasehold.config import Settings
from leasehold.pg.schema import migrate


@pytest.fixture
async def connection(direct_dsn: str) -> AsyncIterator[psycopg.Connection[Any]]:
    await migrate.apply(Settings(dsn=direct_dsn))
    with psycopg.connect(direct_dsn) as opened:
        yield opened
