"""The workshop, followed: `make workshop`. Its leases run out in real time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.steps import environ, walk

PAGES = sorted((Path(__file__).parents[2] / "docs" / "workshop").glob("[!i]*.md"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_workshop_goes_as_it_says(page, migrated, tmp_path):
    assert walk(page, tmp_path, environ(migrated)) > 5
