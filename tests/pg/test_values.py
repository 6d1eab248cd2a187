"""Arguments and results follow their annotations, wherever the handler runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, SecretStr

from leasework import App
from leasework.errors import BadJob, BadPayload, JobFailed
from leasework.jobs.tasks import values_of
from leasework.model.states import State
from tests.pg import values


@pytest.fixture
async def shop(migrated: str) -> AsyncIterator[App]:
    values.app.configure(dsn=migrated)
    yield values.app
    await values.app.close()


@pytest.mark.parametrize("name", ["in_loop", "in_thread", "in_process"])
async def test_a_handler_takes_and_gives_what_its_annotations_say(shop: App, name: str) -> None:
    task: Any = getattr(values, name)
    job = await task.enqueue(**values.GIVEN)
    async with shop.node():
        result = await job.wait(60)
    paid = datetime(2030, 1, 1, tzinfo=UTC)
    assert result == values.Order(values.ORDER.id, values.ORDER.lines, paid)
    record = await shop.get(job.id)
    assert json.dumps(record.payload, sort_keys=True) == json.dumps(
        {
            "address": {"since": "2020-01-02", "street": "Main Street"},
            "colour": "red",
            "more": [STORED],
            "order": STORED,
            "plain": {"a": [1, None]},
            "tags": ["x"],
            "wait": "PT90S",
            "where": [1, 2],
        },
        sort_keys=True,
    )


STORED = {
    "id": str(values.ORDER.id),
    "lines": [{"article": str(values.ORDER.lines[0]["article"]), "price": "9.90"}],
    "paid": None,
}


class Login(BaseModel):
    key: SecretStr


class Person(BaseModel):
    user_id: int = Field(0, alias="userId")


class Named(BaseModel):
    text: str = Field("", serialization_alias="t")


@dataclass
class Event:
    name: str


@dataclass
class OrderPlaced(Event):
    order: int


@dataclass
class Bag:
    data: dict[str, Any]


@dataclass(eq=False)
class Opaque:
    data: dict[str, Any]


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Login, Login(key=SecretStr("hunter2"))),
        (list[Login], [Login(key=SecretStr("hunter2"))]),
        (Event, OrderPlaced("placed", 7)),
        (Bag, Bag({"id": UUID(int=7)})),
    ],
)
def test_a_value_that_would_arrive_changed_is_refused(hint: Any, value: Any) -> None:
    def handler(given: Any) -> None: ...

    handler.__annotations__["given"] = hint
    with pytest.raises(BadPayload, match="does not fit its annotation") as refused:
        values_of(handler, False).write({"given": value})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Person, Person(userId=42)),
        (dict[str, Person], {"a": Person(userId=42)}),
        (Named, Named(text="x")),
        (Event, Event("placed")),
        (Bag, Bag({"id": [1, None, {"a": 0.5}]})),
    ],
)
def test_a_model_arrives_as_it_was_also_with_aliases(hint: Any, value: Any) -> None:
    def handler(given: Any) -> None: ...

    handler.__annotations__["given"] = hint
    both = values_of(handler, False)
    assert both.read(json.loads(json.dumps(both.write({"given": value})))) == {"given": value}


def test_a_dataclass_that_cannot_be_compared_is_taken_as_it_is() -> None:
    def handler(given: Opaque) -> None: ...

    handler.__annotations__["given"] = Opaque
    assert values_of(handler, False).write({"given": Opaque({"a": 1})}) == {
        "given": {"data": {"a": 1}}
    }


async def test_a_value_that_does_not_fit_is_refused_before_it_is_sent(shop: App) -> None:
    task: Any = values.takes
    for wrong in ("no id", 7, None, object()):
        with pytest.raises(BadPayload, match=r"argument order does not fit its annotation"):
            task.job(order=wrong)
    assert json.loads(task.job(order=str(values.ORDER.id)).payload) == {
        "order": str(values.ORDER.id)
    }
    in_loop: Any = values.in_loop
    with pytest.raises(BadPayload, match=r"argument address does not fit.*street: Field required"):
        in_loop.job(**{**values.GIVEN, "address": {"since": "2020-01-02"}})


async def test_the_error_does_not_repeat_the_value(shop: App) -> None:
    task: Any = values.in_loop
    for name, wrong in (("address", {"street": 1, "since": "hunter2"}), ("colour", "hunter2")):
        with pytest.raises(BadPayload, match=f"argument {name} does not fit") as refused:
            task.job(**{**values.GIVEN, name: wrong})
        assert "hunter2" not in str(refused.value)


def test_keys_and_other_annotations_are_kept() -> None:
    def handler(ctx: int, rates: dict[int, str], names: Iterable[int], **more: UUID) -> None: ...

    kept = values_of(handler, takes_context=True)
    given = {"rates": {7: "a"}, "names": [1], "more": "no id"}
    written = kept.write(given)
    assert written == {"rates": {"7": "a"}, "names": [1], "more": "no id"}
    assert kept.read(json.loads(json.dumps(written))) == given
    with pytest.raises(BadPayload, match="argument names does not fit"):
        kept.write({"names": 1})


async def test_what_others_enqueued_fails_its_job_and_says_why(shop: App, sql: Any) -> None:
    request = {"task": values.takes.name, "payload": {"order": "no id"}, "max_attempts": 1}
    [(job, _)] = await sql("select * from leasework.enqueue(%(r)s)", {"r": json.dumps(request)})
    async with shop.node():
        with pytest.raises(JobFailed, match="argument order does not fit its annotation"):
            await wait(shop, job)
        good = await values.takes.enqueue(values.ORDER.id)
        assert await good.wait(30) == "UUID None", "an annotation that cannot be resolved is none"


async def wait(app: App, job: Any) -> Any:
    return await (await app.client()).wait(job, 30)


async def test_a_result_that_does_not_fit_discards_the_job_and_does_not_run_it_again(
    shop: App,
) -> None:
    job = await values.returns_another_type.enqueue()
    async with shop.node():
        with pytest.raises(JobFailed, match=r"ran to its end.*the result does not fit"):
            await job.wait(30)
    record = await shop.get(job.id)
    assert (record.state, record.attempt) == (State.DISCARDED, 1)


async def test_values_without_annotations_are_json_as_before(shop: App) -> None:
    task: Any = values.without_annotations
    job = await task.enqueue(3, text="y")
    async with shop.node():
        assert await job.wait(30) == [3, "y"]
    with pytest.raises(BadPayload, match="not JSON"):
        task.job(n={1, 2})


async def test_an_annotation_that_nothing_can_convert_is_refused(shop: App) -> None:
    async def ambiguous(order: values.Order | values.Address | values.Line) -> None: ...

    with pytest.raises(BadJob, match="the annotation of 'order' cannot be converted"):
        shop.task(name="ambiguous")(ambiguous)
