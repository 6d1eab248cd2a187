"""The quickest in every run; the others by ``make detection``. The limit is wide
here, for the machine may be busy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leasework.watch.checks import KINDS
from tests.detection.measure import measure
from tests.detection.scenes import SCENES
from tests.detection.watch import SOURCES

QUICK = ("queue_unworked", "schema_behind", "jobs_discarded", "crash_loop", "table_locked")


@pytest.mark.parametrize("name", QUICK)
def test_all_four_say_it(name: str, postgres: Any, tmp_path: Path):
    result = measure(name, postgres.dsn, tmp_path)
    assert set(result.seconds) == set(SOURCES), result


def test_each_trouble_is_a_kind_of_problem():
    assert len(SCENES) == 26
    assert {scene.kind for scene in SCENES.values()} <= set(KINDS)
