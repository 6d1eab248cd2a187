"""Arguments come back as they were given, or are refused when they are enqueued."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypedDict
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import attrs
import pydantic
import pytest

from leasework import App
from leasework.errors import BadJob, BadPayload

if TYPE_CHECKING:
    from nowhere import Nope


class Colour(Enum):
    RED = 1


class Mode(StrEnum):
    FAST = "fast"


@dataclass
class Base:
    n: int


@dataclass
class Child(Base):
    more: int = 7


@dataclass
class Price:
    cents: int

    def __post_init__(self) -> None:
        self.cents *= 100


@dataclass
class Meeting:
    at: datetime
    parts: list[Base] = field(default_factory=list)


@attrs.define
class Sent:
    to: str


@attrs.define
class SentTwice(Sent):
    also: str = "x"


class Line(NamedTuple):
    article: UUID
    price: Decimal


class Order(TypedDict):
    id: UUID


class Model(pydantic.BaseModel):
    n: int
    ids: set[UUID] = set()


class Longer(Model):
    more: int = 7


class Excludes(pydantic.BaseModel):
    token: str = pydantic.Field("none", exclude=True)


class Masks(pydantic.BaseModel):
    card: str

    @pydantic.field_serializer("card")
    def _mask(self, card: str) -> str:
        return "***"


class Secret(pydantic.BaseModel):
    word: pydantic.SecretStr


class Outer(pydantic.BaseModel):
    inner: Secret


class Counted(pydantic.BaseModel):
    words: list[str]
    _secret: int = pydantic.PrivateAttr(5)

    @cached_property
    def count(self) -> int:
        return len(self.words)


COUNTED = Counted(words=["a"])
assert COUNTED.count


class Pets(pydantic.RootModel[list[str]]):
    def __iter__(self) -> Any:
        return iter(self.root)


ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
numbers = itertools.count()
TWICE = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)


@pytest.fixture
def stored() -> Callable[..., Any]:
    """``stored(hint, value)``: what a handler with this annotation gets."""
    app = App("postgresql://nobody@nowhere.invalid/none", release="r1")

    def through(hint: Any, value: Any) -> Any:
        def handler(x): ...

        handler.__annotations__ = {} if hint is ... else {"x": hint}
        task = app.task(name=f"t{next(numbers)}")(handler)
        payload = json.loads(task.job(value).payload)
        return app.registry.get(task.name).values.read(payload)["x"]

    return through


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Base, Child(1)),
        (list[Base], [Child(1)]),
        (dict[str, Base], {"a": Child(1)}),
        (Price, Price(1)),
        (list[Price], [Price(1)]),
        (Sent, SentTwice("ann")),
        (Order, {"id": ID, "note": "lost"}),
        (tuple, (ID,)),
        (set, {ID}),
        (dict[UUID, Any], {ID: Decimal(1)}),
        (dict[str, UUID], {1: ID}),
        (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, seconds=15)))),
        (bytes, "abcd"),
        (list[bytes], ["abcd"]),
        (Model, Longer(n=1)),
        (list[Model], [Longer(n=1)]),
        (Excludes, Excludes(token="real")),
        (Masks, Masks(card="4242")),
        (Outer, Outer(inner=Secret(word="abc"))),
        (list[Outer], [Outer(inner=Secret(word="abc"))]),
        (..., {1: 2}),
        (..., [{"a": {None: 2}}]),
        (dict, {1: 2, "1": 3}),
        (dict[str, int], {1: 2}),
    ],
)
def test_what_would_not_come_back_is_refused(stored, hint, value):
    with pytest.raises(BadPayload, match="argument x"):
        stored(hint, value)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Base, Base(1)),
        (Meeting, Meeting(TWICE, [Base(1)])),
        (datetime, TWICE),
        (datetime, datetime(2026, 1, 1)),
        (list[Sent], [Sent("ann")]),
        (Order, {"id": ID}),
        (Line, Line(ID, Decimal("1.10"))),
        (dict[UUID, tuple[int, ...]], {ID: (1, 2)}),
        (dict[int, set[UUID]], {1: {ID}}),
        (frozenset[Colour], frozenset({Colour.RED})),
        (bytes, b"\x00abc"),
        (Decimal, Decimal("NaN")),
        (UUID | None, None),
        (Mode, Mode.FAST),
        (Model, Model(n=1, ids={ID, uuid4()})),
        (Pets, Pets(["dog", "cat"])),
        (Counted, COUNTED),
        (set[int | str], {1, "a"}),
        (..., {Mode.FAST: [1, 2.5, None, True]}),
    ],
)
def test_what_comes_back_is_accepted(stored, hint, value):
    found = stored(hint, value)
    if value == value:
        assert type(found) in (type(value), dict, str, list)
        assert (found.astimezone(UTC) == TWICE.astimezone(UTC)) if value is TWICE else True
        assert found == value or value is TWICE or isinstance(value, Meeting)


@pytest.mark.parametrize(
    ("hint", "value", "gets"),
    [
        (UUID, str(ID), ID),
        (list[UUID], [str(ID)], [ID]),
        (set[UUID], {str(ID)}, {ID}),
        (date, "2026-01-31", date(2026, 1, 31)),
        (Decimal, 5, Decimal(5)),
        (list[Decimal], [0.5], [Decimal("0.5")]),
        (Mode, "fast", Mode.FAST),
        (Base, {"n": 1}, Base(1)),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Base | None, Base(1), Base(1)),
    ],
)
def test_a_form_that_json_has_stands_for_the_value(stored, hint, value, gets):
    assert stored(hint, value) == gets


def test_none_is_a_default_of_every_annotation() -> None:
    app = App("postgresql://nobody@nowhere.invalid/none")

    @app.task(name="t")
    def handler(at: datetime = None, n: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert json.loads(handler.job(at=None, n=None).payload) == {"at": None, "n": None}


def test_an_annotation_that_is_known_only_to_type_checkers_counts_as_missing(stored) -> None:
    app = App("postgresql://nobody@nowhere.invalid/none")

    @app.task(name="t")
    def handler(a: "Nope" | None, b: list["Nope"], c: UUID) -> None: ...  # noqa: UP037

    assert json.loads(handler.job(a={"x": 1}, b=[2], c=ID).payload)["c"] == str(ID)

    @dataclass
    class Unknown:
        x: "Nope"  # noqa: UP037

    with pytest.raises(BadJob, match="Nope"):
        stored(Unknown, Unknown(1))


def test_names_and_places_that_no_handler_could_get_back_are_refused() -> None:
    app = App("postgresql://nobody@nowhere.invalid/none")

    @app.task(name="any")
    def anything(**fields: Any) -> None: ...

    with pytest.raises(BadPayload, match="no argument can have this name"):
        anything.job(**{"$encoded": "x"})

    @app.task(name="places")
    def places(a: int = 0, /, b: int = 0) -> None: ...

    with pytest.raises(BadJob, match="stored by its name"):
        places.job(1)  # type: ignore[call-arg]

    with pytest.raises(BadJob, match="takes ctx only by name"):

        @app.task(name="named")
        def named(*, ctx: Any, a: int) -> None: ...


def test_a_task_that_enqueues_itself_is_registered_in_a_factory() -> None:
    app = App("postgresql://nobody@nowhere.invalid/none")

    @app.task(name="again")
    def again(order: Nope) -> None:
        again.job(order=order)

    assert json.loads(again.job(order=1).payload) == {"order": 1}


def test_a_handler_that_only_raises_may_say_so() -> None:
    app = App("postgresql://nobody@nowhere.invalid/none")

    @app.task(name="t")
    def handler() -> NoReturn:
        raise ValueError

    assert handler.job().payload == "{}"


SCHEDULED = """
from leasework import App
app = App("postgresql://nobody@nowhere.invalid/none")

@app.periodic("0 3 * * *", name="report", arguments={"tags": {"eu", "us", "kr", "jp"}})
@app.task
def report(tags: set[str]) -> None: ...

print(app._planned["report"].job.payload)
"""


def test_the_arguments_of_a_schedule_are_the_same_in_each_process() -> None:
    def payload(seed: int) -> str:
        environ = {**os.environ, "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, "-c", SCHEDULED]
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, check=True
        ).stdout

    assert len({payload(seed) for seed in range(4)}) == 1


def test_none_as_an_option_keeps_what_the_code_says() -> None:
    app = App("postgresql://a/b", name="shop")
    app.configure(dsn=None, name=None)
    assert (app.settings.dsn, app.settings.name) == ("postgresql://a/b", "shop")
