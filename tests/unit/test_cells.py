"""Which cell a key belongs to: the same in all processes, with as few moves as possible, and as the
pins say."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from leasework import App, Cells
from leasework.errors import ConfigError

THREE = {name: f"postgresql://{name}/shop" for name in ("eu1", "eu2", "eu3")}
GOLDEN = {
    "1": "eu1",
    "7": "eu2",
    "customer-1": "eu3",
    "Ärger": "eu3",
    "a@b.example": "eu2",
    "0198c5d2-0000-7000-8000-000000000001": "eu2",
}
"""The owners among THREE. They must never change: the jobs of a key are in its cell."""
KEYS = [f"customer-{n}" for n in range(6000)]


def cells(databases: dict[str, str] = THREE, **given: Any) -> Cells:
    return Cells(App(name="shop"), databases, **{"schedules": "eu1", **given})


# -- the hash ----------------------------------------------------------------------------------
def test_a_key_belongs_to_the_same_cell_in_every_version() -> None:
    assert {key: cells().name_of(key) for key in GOLDEN} == GOLDEN


def test_a_key_belongs_to_the_same_cell_in_every_process() -> None:
    code = (
        "from tests.unit.test_cells import GOLDEN, cells\n"
        "assert {key: cells().name_of(key) for key in GOLDEN} == GOLDEN"
    )
    for seed in ("1", "2"):  # of hash(), on which nothing may depend
        environ = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        subprocess.run([sys.executable, "-c", code], check=True, env=environ)


def test_neither_the_order_of_the_cells_nor_their_servers_matter() -> None:
    other = {name: f"host=other dbname={name}" for name in reversed(THREE)}
    assert {key: cells(other).name_of(key) for key in GOLDEN} == GOLDEN


def test_a_number_and_a_uuid_are_the_keys_of_their_texts() -> None:
    uuid = UUID("0198c5d2-0000-7000-8000-000000000001")
    pinned = cells(pins={7: "eu3", uuid: "eu1"})
    assert pinned.name_of("7") == pinned.name_of(7) == "eu3"
    assert pinned.name_of(str(uuid)) == pinned.name_of(uuid) == "eu1"


def test_each_cell_has_about_the_same_number_of_keys() -> None:
    found = Counter(map(cells().name_of, KEYS))
    assert all(0.9 < count / (len(KEYS) / 3) < 1.1 for count in found.values()), found


@given(st.lists(st.text("abc12", min_size=1, max_size=4), min_size=2, max_size=6, unique=True))
def test_a_new_cell_takes_keys_and_no_key_moves_between_the_others(names: list[str]) -> None:
    *before, added = names
    made = cells({name: f"host={name}" for name in before}, schedules=before[0])
    assert all(then == added for _, then in made.moves(KEYS[:300], names).values())


def test_a_fourth_cell_takes_a_quarter_and_without_a_cell_only_its_own_keys_move() -> None:
    made = cells()
    grown = made.moves(KEYS, [*THREE, "eu4"])
    assert 0.22 < len(grown) / len(KEYS) < 0.28
    shrunk = made.moves(KEYS, ["eu1", "eu2"])
    assert set(shrunk) == {key for key in KEYS if made.name_of(key) == "eu3"}
    assert {then for _, then in shrunk.values()} == {"eu1", "eu2"}


# -- pins --------------------------------------------------------------------------------------
def test_of_returns_the_app_of_the_pin_or_else_of_the_hash() -> None:
    made = cells(pins={"customer-1": "eu2"})
    assert made.of("customer-1") is made.apps["eu2"]
    assert made.of("a@b.example") is made.apps["eu2"]
    made.pin({"a@b.example": "eu3"})  # all pins are replaced
    assert made.of("customer-1") is made.apps["eu3"]
    assert made.of("a@b.example") is made.apps["eu3"]


def test_pins_of_what_moves_keep_every_key_where_it_is() -> None:
    before = cells(pins={"customer-1": "eu1"})
    four = {**THREE, "eu4": "postgresql://eu4/shop"}
    pins = {key: now for key, (now, _) in before.moves(KEYS, four).items()}
    after = cells(four, pins={"customer-1": "eu1", **pins})
    assert [after.name_of(key) for key in KEYS] == [before.name_of(key) for key in KEYS]
    assert after.moves(KEYS, four) == {}


def test_a_pinned_key_moves_only_with_its_cell() -> None:
    made = cells(pins=dict.fromkeys(KEYS[:50], "eu3"))
    assert not made.moves(KEYS[:50], ["eu3", "eu4"])
    assert made.moves(KEYS[:50], ["eu1", "eu2"]).keys() == set(KEYS[:50])


def test_wrong_pins_leave_the_earlier_ones() -> None:
    made = cells(pins={"customer-1": "eu2"})
    with pytest.raises(ConfigError, match=r"'a' names no cell.*eu9.*Did you mean"):
        made.pin({"customer-1": "eu3", "a": "eu9"})
    assert made.name_of("customer-1") == "eu2"


# -- what is wrong -----------------------------------------------------------------------------
@pytest.mark.parametrize("key", [None, True, 1.5, b"1", ("a",), "", "a\0b", "\ud800", "x" * 201])
def test_what_is_no_key_is_refused(key: Any) -> None:
    for call in (cells().of, cells().name_of, lambda one: cells(pins={one: "eu1"})):
        with pytest.raises(ConfigError, match="key"):
            call(key)


@pytest.mark.parametrize(
    ("databases", "more", "said"),
    [
        ({}, {}, "no cells"),
        ({"eu1": "host=a", "eu2": "host=a"}, {}, r"DSN of its own.*'eu1', 'eu2'"),
        ({"eu1": ""}, {}, "DSN of its own"),
        ({"eu1": 5}, {}, "dsn must be text"),
        ({"": "host=a"}, {}, "a cell's name"),
        ({"eu1": "host=a"}, {"schedules": "eu2"}, "schedules names no cell.*eu2.*'eu1'"),
        ({"eu1": "host=a"}, {"schedules": None}, "schedules names no cell"),
    ],
)
def test_wrong_cells_are_refused(databases: Any, more: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        cells(databases, **more)


def test_an_app_with_a_database_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"a database of its own.*LEASEWORK_DSN") as refused:
        Cells(App("postgresql://u:geheim@h/d"), THREE, schedules="eu1")
    assert "geheim" not in str(refused.value)
    monkeypatch.setenv("LEASEWORK_DSN", "embedded")
    with pytest.raises(ConfigError, match="a database of its own"):
        cells()


def test_moves_needs_names() -> None:
    with pytest.raises(ConfigError, match="no cells"):
        cells().moves(KEYS, [])


# -- the apps ----------------------------------------------------------------------------------
async def test_the_apps_have_the_settings_and_tasks_and_one_has_the_schedules() -> None:
    app = App(name="shop", recover_within=30)
    made = Cells(app, THREE, schedules="eu2")

    @app.every(seconds=60)
    @app.task()
    async def later() -> None: ...

    assert [one.settings.dsn for one in made.apps.values()] == list(THREE.values())
    assert {one.settings.name for one in made.apps.values()} == {"shop"}
    assert {one.settings.recover_within for one in made.apps.values()} == {30}
    assert all(later.name in one.registry.known() for one in made.apps.values())
    assert [bool(one._planned) for one in made.apps.values()] == [False, True, False]
    with pytest.raises(ConfigError, match="no database is configured"):
        await later.enqueue()  # which cell?
