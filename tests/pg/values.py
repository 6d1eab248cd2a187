"""Handlers whose annotations say more than JSON does, in a module that a child process imports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict
from uuid import UUID

from pydantic import BaseModel

from leasework import App, Context, Discard, Snooze, SyncContext

if TYPE_CHECKING:
    from elsewhere import Unknown

app = App(name="values")


class Colour(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


class Line(TypedDict):
    article: UUID
    price: Decimal


class Address(BaseModel):
    street: str
    since: date


@dataclass
class Order:
    id: UUID
    lines: list[Line]
    paid: datetime | None = None


ORDER = Order(UUID(int=7), [{"article": UUID(int=8), "price": Decimal("9.90")}])
GIVEN: dict[str, Any] = {
    "order": ORDER,
    "colour": Colour.RED,
    "where": Point(1, 2),
    "address": Address(street="Main Street", since=date(2020, 1, 2)),
    "wait": timedelta(seconds=90),
    "plain": {"a": [1, None]},
    "tags": {"x"},
    "more": [ORDER],
}


def check(given: dict[str, Any]) -> Order:
    assert given == GIVEN, given
    return Order(ORDER.id, ORDER.lines, datetime(2030, 1, 1, tzinfo=UTC))


@app.task
async def in_loop(
    ctx: Context, order: Order, colour: Colour, where: Point, address: Address, wait: timedelta,
    plain: dict[str, Any], tags: set[str], more: list[Order],
) -> Order | Snooze | Discard:  # fmt: skip
    return check({name: value for name, value in locals().items() if name != "ctx"})


@app.task
def in_thread(
    ctx: SyncContext, order: Order, colour: Colour, where: Point, address: Address, wait: timedelta,
    plain: dict[str, Any], tags: set[str], more: list[Order],
) -> Order:  # fmt: skip
    return check({name: value for name, value in locals().items() if name != "ctx"})


@app.task(executor="process")
def in_process(
    order: Order, colour: Colour, where: Point, address: Address, wait: timedelta,
    plain: dict[str, Any], tags: set[str], more: list[Order],
) -> Order:  # fmt: skip
    return check(dict(locals()))


@app.task(max_attempts=1)
async def takes(order: UUID, unknown: Unknown | None = None) -> str:
    return f"{type(order).__name__} {unknown}"


@app.task
async def returns_another_type() -> list[UUID]:
    return ["not one"]  # type: ignore[list-item]


@app.task
async def without_annotations(n, text="x"):  # type: ignore[no-untyped-def]
    return [n, text]
