"""The page on Django, followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.docs.steps import environ, walk

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "django.md"


@pytest.mark.timeout(300)
def test_the_page_goes_as_it_says(direct_dsn: str, tmp_path: Path) -> None:
    given = conninfo_to_dict(direct_dsn)
    names = {"dbname": "PGDATABASE", "host": "PGHOST", "port": "PGPORT", "user": "PGUSER"}
    here = {variable: str(given[name]) for name, variable in names.items() if given.get(name)}
    here["PGOPTIONS"] = "-c search_path=public"
    assert walk(PAGE, tmp_path, {**environ(""), **here}) == 8
