"""Provides a database with the schema, and one session on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest


@pytest.fixture
def connection(migrated: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(migrated) as opened:
        yield opened
