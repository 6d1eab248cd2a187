"""``leasework.enqueue(jsonb)`` by hand: a clear error and nothing written, or the job asked for."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given, settings, strategies as st

from tests.hostile.strategies import quick
from tests.support.requests import job_request

OPTIONS = (
    "id", "task", "payload", "queue", "priority", "run_at", "run_in", "max_attempts", "timeout",
    "requeue_after", "unique", "unique_for", "on_conflict", "history", "payload_limit", "retried",
    "deadline",
)  # fmt: skip
OURS = re.compile(r"leasework\.enqueue: ")


def enqueue(connection: Any, text: str) -> list[Any] | psycopg.Error:
    """What it answers; the error after a rollback to before the call."""
    connection.execute("select 1")  # a transaction of ours around it, which the caller rolls back
    try:
        with connection.transaction():
            call = connection.execute("select * from leasework.enqueue(%s::jsonb)", [text])
            return list(call.fetchall())
    except psycopg.Error as error:
        return error


def rows(connection: Any) -> int:
    [(count,)] = connection.execute(
        "select (select count(*) from leasework.job) + (select count(*) from leasework.job_key)"
    ).fetchall()
    return int(count)


# JSON as somebody writes it by hand: numbers in every spelling, and nothing Python has to parse
numbers = st.sampled_from(
    ["5", "5.0", "5e0", "-1", "0", "1e-400", "1e400", "1e100000", "32768", "0.001", "9" * 500,
     "2147483648", "604800.0000001", "-0", "-0.0"]
)  # fmt: skip
strings = st.one_of(
    st.text(max_size=8).map(json.dumps),
    st.sampled_from(
        ['"NaN"', '"Infinity"', '"now"', '"infinity"', '"tomorrow"', '"2030-01-31T12:00:00Z"',
         '"2030-01-31T12:00:00"', '"2030-01-31"', '"294277-01-01T00:00:00Z"', '"2030-13-31T12:00Z"',
         '"0001-01-01T00:00:00+14:00"', '"2030-01-31 12:00:00+05:53:28"', '"2030-01-31T24:00:00Z"',
         '"return"', '"replace"', '"true"', '"\\u0000"', '"\\ud800"', '""', '"' + "x" * 201 + '"',
         f'"{"-" * 36}"', f'"{uuid4()}"', f'"{{{uuid4()}}}"', f'"{str(uuid4()).upper()}"']
    ),
)  # fmt: skip
scalars = numbers | strings | st.sampled_from(["null", "true", "false"])
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.dictionaries(strings, inner, max_size=3).map(
            lambda pairs: "{" + ",".join(f"{k}:{v}" for k, v in pairs.items()) + "}"
        )
    ),
    max_leaves=4,
)
keys = st.sampled_from(OPTIONS) | st.text(max_size=6)
by_hand = st.dictionaries(keys, values, max_size=5).map(
    lambda pairs: ",".join(f"{json.dumps(key)}:{value}" for key, value in pairs.items())
)
RIGHT = {
    "payload": '{"a":[1e3,null,"é"]}', "queue": '"q"', "priority": "-5", "run_in": "0.5",
    "max_attempts": "3", "timeout": "1e-3", "requeue_after": "60", "unique": '"k"',
    "history": "false", "payload_limit": "5e5", "id": f'"{str(uuid4()).upper()}"',
}  # fmt: skip
nearly_right = st.builds(
    lambda names, odd, value: (
        '{"task":"t",'
        + ",".join(f'"{name}":{value if name == odd else RIGHT[name]}' for name in names)
        + "}"
    ),
    st.lists(st.sampled_from(list(RIGHT)), min_size=1, max_size=6, unique=True),
    st.sampled_from([*RIGHT, "none"]),
    values,
)
requests = st.one_of(
    nearly_right,
    by_hand.map(lambda rest: '{"task":"t"' + ("," + rest if rest else "") + "}"),
    by_hand.map(lambda rest: "{" + rest + "}"),
    values,
)


async def test_any_request_is_refused_clearly_or_is_the_job_that_was_asked_for(
    connection: Any,
) -> None:
    kept = 0

    @settings(quick, max_examples=500)
    @given(
        st.one_of(
            nearly_right, requests, st.lists(requests, max_size=3).map(lambda r: f"[{','.join(r)}]")
        )
    )
    def holds(text: str) -> None:
        nonlocal kept
        before = rows(connection)
        answer = enqueue(connection, text)
        if isinstance(answer, psycopg.Error):
            assert rows(connection) == before, "something was written"
            refused_clearly(answer)
            return
        for job_id, created in answer:
            assert created is not None
            if created:
                kept += 1
                came_out_right(connection, job_id)
        connection.rollback()

    holds()
    assert kept > 20, "hardly anything was right: the test tests too little"


def refused_clearly(error: psycopg.Error) -> None:
    text = error.diag.message_primary or ""
    assert len(text) < 500, text[:500]
    if error.sqlstate in ("22P02", "22P05", "54001", "22003"):
        # jsonb itself refused it: no call of ours has begun
        assert "jsonb_in" not in text
        assert any(
            w in text for w in ("json", "Unicode", "stack depth", "numeric", "out of range")
        ), text
    elif error.sqlstate == "22008":
        assert text.startswith("date/time field value out of range: "), text
    else:
        assert OURS.match(text), (error.sqlstate, text)


def came_out_right(connection: Any, job_id: Any) -> None:
    """The view shows a job that a worker can read, with its numbers in their limits."""
    row = connection.execute(
        "select task_name, queue, priority, max_attempts, timeout_seconds, state,"
        " scheduled_for between '0002-01-01' and '9999-12-31', jsonb_typeof(payload)"
        " from leasework.jobs where id = %s",
        [job_id],
    ).fetchone()
    assert row is not None
    task, queue, priority, attempts, timeout, state, in_range, kind = row
    assert 1 <= len(task) <= 200 and 1 <= len(queue) <= 200 and kind == "object"
    assert -32768 <= priority <= 32767 and attempts >= 1 and in_range
    assert timeout is None or timeout > 0
    assert state in ("available", "scheduled")


async def test_what_the_client_may_ask_for_the_database_takes(connection: Any) -> None:
    """The two checks, Python's and the database's, agree on every job that Python lets pass."""
    moments = st.datetimes(datetime(2, 1, 2), datetime(9998, 12, 30), timezones=st.just(UTC))
    jobs = st.fixed_dictionaries(
        {"task": st.text(min_size=1, max_size=200), "payload": st.just('{"a":1}')},
        optional={
            "queue": st.text(min_size=1, max_size=200), "priority": st.integers(-32768, 32767),
            "max_attempts": st.integers(1, 32767), "timeout": st.floats(0.001, 604800),
            "requeue_after": st.floats(1, 604800), "unique": st.text(min_size=1, max_size=200),
            "history": st.booleans(),
        },
    )  # fmt: skip
    when = st.one_of(
        st.just({}),
        moments.map(lambda at: {"run_at": at}),
        st.floats(0, 100 * 366 * 86400).map(lambda seconds: {"run_in": seconds}),
    )

    @settings(quick, max_examples=200)
    @given(jobs, when)
    def agree(options: dict[str, Any], moment: dict[str, Any]) -> None:
        try:
            job = job_request(**options, **moment)
        except Exception:
            return
        request = job.as_request(uuid4(), 1 << 20)
        answer = enqueue(connection, json.dumps(request))
        assert not isinstance(answer, psycopg.Error), answer
        row = connection.execute(
            "select task_name, queue, priority, max_attempts, run_at from leasework.job"
            " where id = %s",
            [answer[0][0]],
        ).fetchone()
        assert row[:4] == (job.task, job.queue, job.priority, job.max_attempts)
        assert job.run_at is None or row[4] == job.run_at
        connection.rollback()

    agree()


ONE_BAD = [
    ('{"task":"t","priority":5.0}', "priority must be a whole number"),
    ('{"task":"t","max_attempts":3.0}', "max_attempts must be a whole number"),
    ('{"task":"t","timeout":"NaN"}', "timeout must be a number from 0.001 to 604800"),
    ('{"task":"t","run_in":1e400}', "run_in must be a number"),
    ('{"task":"t","run_at":"2030-01-31T12:00:00"}', "run_at must be a time with a time zone"),
    ('{"task":"t","run_at":"now"}', "run_at must be a time with a time zone"),
    ('{"task":"t","run_at":"294277-01-01T00:00:00Z"}', "run_at must be a time with a time zone"),
    ('{"task":"t","id":"' + "-" * 36 + '"}', "id must be a UUID"),
    ('{"task":"t","%s":1}' % ("k" * 100_000), "kkk"),
    ('{"task":"t","payload":[1]}', "payload must be an object"),
    ('{"task":["t"]}', "task must be text"),
    ('[{"task":"t"},{"task":"t","prio":1}]', "prio is not known"),
    ('[[{"task":"t"}]]', "each job must be an object, got array"),
]


@pytest.mark.parametrize(("text", "words"), ONE_BAD, ids=[words for _, words in ONE_BAD])
async def test_one_bad_option_is_named_and_no_job_of_the_call_is_written(
    connection: Any, text: str, words: str
) -> None:
    answer = enqueue(connection, text)
    assert isinstance(answer, psycopg.Error) and words in str(answer), answer
    assert len(str(answer)) < 600 and rows(connection) == 0


@pytest.mark.parametrize("clock", ["infinity", "-infinity", "20000-01-01", "0044-03-15 BC"])
async def test_a_clock_that_no_worker_can_read_is_refused(connection: Any, clock: str) -> None:
    with pytest.raises(psycopg.Error, match="clock must be a time from the year 2"):
        connection.execute('select leasework.enqueue(\'{"task":"t"}\', %s::timestamptz)', [clock])
    connection.rollback()
    assert rows(connection) == 0


@pytest.mark.parametrize("clock", ["infinity", "-infinity", "20000-01-01", "0044-03-15 BC"])
async def test_nor_does_a_signal_bring_such_a_clock(connection: Any, clock: str) -> None:
    """Its job would be due then: no worker could claim it, and no page show it."""
    call = 'select id from leasework.enqueue(\'{"task":"t"}\')'
    [(job,)] = connection.execute(call).fetchall()
    with pytest.raises(psycopg.errors.CheckViolation, match='"clock"'):
        connection.execute("select leasework.send_signal(%s, 'go', null, %s)", [job, clock])
    connection.rollback()


async def test_a_payload_of_a_hundred_megabytes_is_refused_clearly(connection: Any) -> None:
    with pytest.raises(psycopg.Error, match="is over the limit of 1048576") as caught:
        connection.execute(
            "select leasework.enqueue(jsonb_build_object('task', 't', 'payload',"
            " jsonb_build_object('a', repeat('x', 100000000))))"
        )
    assert len(str(caught.value)) < 500
    connection.rollback()
    assert rows(connection) == 0


async def test_keys_of_two_tasks_never_meet(connection: Any) -> None:
    """However the two names are cut: a key holds back jobs of its own task alone."""
    names = st.text(alphabet="a:\\", min_size=1, max_size=4)

    @quick
    @given(names, names, names, names)
    def apart(task: str, key: str, other: str, label: str) -> None:
        first, second = (
            json.dumps({"task": t, "unique": u}) for t, u in ((task, key), (other, label))
        )
        [(holder, made)] = enqueue(connection, first)
        [(job_id, created)] = enqueue(connection, second)
        assert made and created == ((task, key) != (other, label))
        assert created == (job_id != holder)
        connection.rollback()

    apart()
    assert enqueue(connection, '{"task":"a:b","unique":"c"}')[0][1]
    assert enqueue(connection, '{"task":"a","unique":"b:c"}')[0][1]
