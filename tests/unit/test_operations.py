"""How declarations of operations are executed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import pytest
from leasework_lab.sim.rows import SimDatabase
from leasework_lab.sim.store import SimStore
from msgspec import Struct

from leasework.env import Env
from leasework.errors import QueryFailed
from leasework.pg.connection.fast.link import Row
from leasework.store.durable import DurableStore
from leasework.store.limits import LimitStore
from leasework.store.operation import Operation, Operations, operation, value
from leasework.store.store import Store


class Colour(StrEnum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


class Record(Struct):
    name: str
    more: dict[str, int]


class Line(NamedTuple):
    begin: Point
    end: Point
    colour: str


class Shop(Operations):
    """Answers with the rows that it was given, and keeps what it was asked."""

    def __init__(self, *rows: Row) -> None:  # without a pool
        self.rows = list(rows)
        self.asked: tuple[str, dict[str, Any], float | None] | None = None
        self.documents: frozenset[str] = frozenset()

    async def execute(
        self, operation: Operation, params: dict[str, Any], timeout: float | None
    ) -> list[Row]:
        self.asked = operation.sql, params, timeout
        self.documents = operation.documents
        return self.rows

    @operation("shop/nothing")
    async def nothing(self, a: int, b: str = "usual") -> None: ...

    @operation("shop/found")
    async def found(self, timeout: float) -> bool: ...

    @operation("shop/one")
    async def one(self) -> int: ...

    @operation("shop/maybe")
    async def maybe(self) -> str | None: ...

    @operation("shop/colour")
    async def colour(self) -> Colour | None: ...

    @operation("shop/points")
    async def points(self) -> list[Point]: ...

    @operation("shop/line")
    async def line(self) -> Line | None: ...

    @operation("shop/ids")
    async def ids(self) -> set[int]: ...

    @operation("shop/pairs")
    async def pairs(self) -> list[tuple[int, str]]: ...

    @operation("shop/pair")
    async def pair(self) -> tuple[int, str]: ...

    @operation("shop/counted", answer=len)
    async def counted(self) -> int: ...

    @operation("shop/said", answer=value)
    async def said(self) -> bool: ...

    @operation("shop/sent")
    async def sent(
        self, ids: Sequence[int], record: dict[str, Any], records: Sequence[Record]
    ) -> None: ...

    @operation("shop/several")
    async def several(
        self, one: Record, points: Sequence[Point], pairs: Sequence[tuple[int, str]]
    ) -> None: ...


async def test_arguments_reach_the_statement_by_name_with_their_defaults():
    shop = Shop()
    await shop.nothing(1)
    assert shop.asked == ("shop/nothing", {"a": 1, "b": "usual"}, None)
    await shop.nothing(b="x", a=2)
    assert shop.asked == ("shop/nothing", {"a": 2, "b": "x"}, None)


async def test_a_timeout_is_the_calls_and_no_parameter():
    shop = Shop()
    await shop.found(3.0)
    assert shop.asked == ("shop/found", {}, 3.0)


async def test_the_annotation_says_what_becomes_of_the_rows():
    assert await Shop().nothing(1) is None
    assert await Shop().found(1) is False and await Shop((None,)).found(1) is True
    assert await Shop((7, "beside")).one() == 7
    assert await Shop().maybe() is None and await Shop(("x",)).maybe() == "x"
    assert await Shop((None,)).colour() is None and await Shop(("red",)).colour() is Colour.RED
    assert await Shop((1, 2, "beside"), (3, 4)).points() == [Point(1, 2), Point(3, 4)]
    line = await Shop((1, 2, 3, 4, "red", "beside")).line()
    assert line == Line(Point(1, 2), Point(3, 4), "red") and await Shop().line() is None
    assert await Shop((1,), (2,)).ids() == {1, 2}
    assert await Shop((1, "a"), (2, "b")).pairs() == [(1, "a"), (2, "b")]
    assert await Shop((1, "a")).pair() == (1, "a")


async def test_an_answer_may_read_the_rows_in_another_way():
    assert await Shop((1,), (1,)).counted() == 2
    assert await Shop((False,)).said() is False


async def test_dictionaries_and_records_are_documents_and_other_sequences_are_not():
    shop = Shop()
    await shop.sent([1], {}, [])
    assert shop.documents == {"record", "records"}


async def test_a_record_is_sent_as_its_fields_and_tuples_as_one_array_for_each_column():
    shop = Shop()
    await shop.several(Record("a", {"x": 1}), [Point(1, 2), Point(3, 4)], [(5, "b")])
    assert shop.asked and shop.asked[1] == {
        "one_name": "a", "one_more": {"x": 1}, "points_x": (1, 3), "points_y": (2, 4),
        "pairs_1": (5,), "pairs_2": ("b",),
    }  # fmt: skip
    assert shop.documents == {"one_more"}
    await shop.several(Record("a", {}), [], [])
    assert shop.asked[1] | {"points_x": (), "pairs_2": ()} == shop.asked[1]


async def test_an_operation_that_the_simulation_lacks_is_refused_by_its_name():
    with pytest.raises(QueryFailed, match="limit/throttle"):
        await SimStore(SimDatabase(Env().wall_now)).throttle("key", 1.0, None)


def test_the_simulated_store_has_a_handler_for_every_operation():
    """The real methods would look for a connection."""
    real = {"notify", "abandon", "silence", "end_session"}
    made_of_others = {"ack_again"}
    declared = {name for name in dir(Store) if not name.startswith("_")} - real - made_of_others
    declared -= {*dir(LimitStore), *dir(DurableStore)} - {
        *dir(Operations)
    }  # the simulation has neither
    missing = [name for name in declared if getattr(SimStore, name) is getattr(Store, name)]
    assert len(declared) > 60 and not missing
