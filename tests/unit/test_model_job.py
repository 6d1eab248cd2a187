"""What may be a job: its options, and its arguments as JSON."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st

from leasework.config import Limits
from leasework.errors import BadJob, BadPayload
from leasework.model.job import Unreadable, decode, encode
from leasework.model.states import State
from tests.support.requests import job_request

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# -- encode ------------------------------------------------------------------------------------
@given(json_values)
def test_what_is_encoded_reads_back_or_is_refused(value: Any) -> None:
    try:
        text = encode("it", value, 10_000)
    except BadPayload:
        raw = json.dumps(value)
        assert "\\u0000" in raw or "\\ud" in raw or len(raw) > 10_000
    else:
        assert decode(text) == value
        text.encode()


keys = st.text() | st.booleans() | st.none() | st.integers() | st.floats()
odd_values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    | st.datetimes() | st.uuids() | st.decimals() | st.sampled_from(State)
    | st.sampled_from([10**5000, "\ud800", {1}])
)  # fmt: skip


@given(st.dictionaries(keys, odd_values, max_size=4))
def test_a_dict_is_written_as_python_writes_it(value: dict[Any, Any]) -> None:
    """Also if msgspec writes it."""
    texts = [text for text in [*value, *value.values()] if isinstance(text, str)]
    python: str | None = None
    if not any("\x00" in text for text in texts):
        with suppress(TypeError, ValueError):
            written = json.dumps(value, ensure_ascii=False, allow_nan=False)
            python = written.encode().decode()
    try:
        text: str | None = encode("it", value, 1 << 20)
    except BadPayload:
        text = None
    assert text is None if python is None else json.loads(text or "") == json.loads(python)


@given(json_values | st.sampled_from([2**64, -(2**63) - 1, 10**400, 1e308, -0.0, 5e-324]))
def test_json_is_read_as_python_reads_it(value: Any) -> None:
    text = json.dumps(value)
    read, wanted = decode(text), json.loads(text)
    assert repr(read) == repr(wanted) == repr(decode(text.encode()))


def test_a_number_beyond_floats_is_read_as_python_reads_it() -> None:
    assert decode("[1e400]") == [float("inf")]


@given(st.text(alphabet='\\u0"n\x00', max_size=12))
def test_a_nul_is_told_from_backslashes(text: str) -> None:
    if "\x00" in text:
        with pytest.raises(BadPayload, match="NUL"):
            encode("it", {text: 1}, 1000)
    else:
        assert decode(encode("it", {text: [text]}, 1000)) == {text: [text]}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "not JSON"),
        ({1, 2}, "not JSON"),
        (datetime(2026, 1, 1, tzinfo=UTC), "annotate the handler"),
        (b"bytes", "not JSON"),
        (float("nan"), "not JSON"),
        ([float("-inf")], "not JSON"),
        ({(1, 2): 3}, "not JSON"),
        ({"a": "\x00"}, "NUL"),
        ({"\x00": "a"}, "NUL"),
        ("\ud800", "surrogate"),
        ({"a\udfff": 1}, "surrogate"),
        (10**5000, "not JSON"),
        (nested(Limits.json_depth + 1), "nested deeper than 200 levels"),
        (nested(100_000), "nested too deeply"),
        ("x" * 1001, "1003 bytes, over the limit of 1001"),
        ("☃" * 500, "1502 bytes"),
    ],
    ids=range(16),
)
def test_what_is_refused_says_why(value: Any, why: str) -> None:
    with pytest.raises(BadPayload, match=rf"^arguments of t: .*{why}"):
        encode("arguments of t", value, 1001)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(BadPayload):
        encode("it", loop, 1000)


@given(st.integers(1, 300))
def test_the_depth_has_one_limit_whatever_is_nested(depth: int) -> None:
    as_dicts: Any = 1
    for _ in range(depth):
        as_dicts = {"a": as_dicts, "b": [{}]}
    for value in (nested(depth), [tuple([nested(depth - 1)])][0] if depth > 1 else [1], as_dicts):
        text = json.dumps(value)
        levels = max(text[:i].count("[") + text[:i].count("{") - text[:i].count("]")
                     - text[:i].count("}") for i in range(len(text) + 1))  # fmt: skip
        if levels <= Limits.json_depth:
            encode("it", value, 1 << 20)
        else:
            with pytest.raises(BadPayload):
                encode("it", value, 1 << 20)


def test_as_wide_as_you_like_is_not_deep() -> None:
    encode("it", [[] for _ in range(10_000)], 1 << 20)


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, "1" + "0" * 5000, "{"])
def test_what_cannot_be_read_is_a_value_and_no_error(text: str) -> None:
    assert isinstance(decode(text), Unreadable)


# -- options -----------------------------------------------------------------------------------
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "options",
    [
        {"task": ""}, {"task": "x" * 201}, {"task": "a\x00b"}, {"task": "\ud800"}, {"task": 1},
        {"queue": ""}, {"queue": None}, {"unique": ""}, {"unique": "x" * 201}, {"unique": 7},
        {"priority": 40_000}, {"priority": 1.5}, {"priority": True}, {"priority": "1"},
        {"max_attempts": 0}, {"max_attempts": 32_768},
        {"run_in": -1}, {"run_in": float("nan")}, {"run_in": float("inf")}, {"run_in": "60"},
        {"run_at": MOMENT.replace(tzinfo=None)}, {"run_at": "2026-01-01"},
        {"run_at": MOMENT, "run_in": 1},
        {"run_at": datetime.min.replace(tzinfo=UTC)}, {"run_at": datetime.max.replace(tzinfo=UTC)},
        {"timeout": 0}, {"timeout": -1}, {"timeout": 1e12}, {"requeue_after": 0.5},
        {"unique_for": 5}, {"unique": "k", "unique_for": 0},
    ],
    ids=str,
)  # fmt: skip
def test_options_that_do_not_fit_are_refused_where_the_job_is_made(options: Any) -> None:
    with pytest.raises(BadJob):
        job_request(**options)


@pytest.mark.parametrize(
    ("options", "plain"),
    [({}, True), ({"priority": 3, "timeout": 5}, True), ({"unique": "k"}, False),
     ({"run_in": 0}, False), ({"run_at": MOMENT}, False)],
    ids=str,
)  # fmt: skip
def test_only_jobs_that_are_due_at_once_and_hold_no_key_go_by_copy(
    options: Any, plain: bool
) -> None:
    assert job_request(**options).plain is plain
