"""The filter language: what it understands, and how it refuses the rest."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from leasework.errors import BadFilter, BadJob
from leasework.model.filter import STATES, JobFilter, parse
from leasework.model.history import added, class_of, class_seconds, percentile
from leasework.model.states import State

A, B = UUID(int=1 << 90), UUID(int=1 << 91)


def test_each_key_is_understood():
    found = parse(' state:running  queue:mail task:"a b" node:web-1:42 ')
    assert found == JobFilter("running", "mail", "a b", "web-1:42")
    assert parse("") == parse("  ") == JobFilter()


def test_arguments_are_a_path_and_a_text():
    found = parse('args.user_id:42 args.address.city:"New \\"York\\""').arguments
    assert found == ((("user_id",), "42"), (("address", "city"), 'New "York"'))


@pytest.mark.parametrize(
    "text, first, last",
    [
        (f"{A}", A, A),
        (f"id:{A}", A, A),
        (f"id:{A}..{B}", A, B),
        (f"id:{A}..", A, JobFilter().last),
        (f"id:..{B}", JobFilter().first, B),
        ("id:01934a2b-7c", UUID(f"01934a2b-7c{'0' * 22}"), UUID(f"01934a2b-7c{'f' * 22}")),
        ("id:01934A2B..", UUID(f"01934a2b{'0' * 24}"), JobFilter().last),
    ],
)
def test_an_id_and_a_range_of_ids(text, first, last):
    assert parse(text) == JobFilter(first=first, last=last)


@pytest.mark.parametrize(
    "text, says",
    [
        ("stat:running", "Did you mean 'state'"),
        ("state:runing", "Did you mean 'running'"),
        ("running", "state:running"),
        ("send_mail", "task:send_mail"),
        ("queue:", "needs a value"),
        ("queue:a queue:b", "twice"),
        ('task:"open', "quote"),
        ("id:7", "UUID"),
        ("args.:1", "name of an argument"),
        ("args.a..b:1", "name of an argument"),
        (" ".join(f"args.a{n}:1" for n in range(9)), "at most 8"),
        ("queue:" + "x" * 2000, "at most 1000"),
        ("queue:" + "x" * 300, "at most 200"),
        ("queue:a\x00b", "NUL"),
    ],
)
def test_what_is_not_understood_is_refused_with_a_hint(text, says):
    with pytest.raises(BadFilter, match=re.escape(says)):
        parse(text)


def test_masked_arguments_cannot_be_asked_for():
    masked = re.compile("password", re.IGNORECASE)
    with pytest.raises(BadFilter, match="masked"):
        parse("args.user.Password:guess", masked)
    assert parse("args.user:guess", masked).arguments


def test_classes_of_durations_add_up_and_give_percentiles():
    assert class_of(0.0) == class_of(0.0011) == 0
    for seconds in (0.001, 0.01, 0.5, 3.0, 600.0, 86400.0):
        assert class_seconds(class_of(seconds)) == pytest.approx(seconds, rel=0.1)
    counts = added([{"10": 90}, {"10": 5, "30": 5}])
    assert counts == {10: 95, 30: 5}
    assert percentile(counts, 0.5) == percentile(counts, 0.95) == class_seconds(10)
    assert percentile(counts, 0.99) == class_seconds(30)
    assert percentile({}, 0.5) is None


def test_a_filter_has_a_limit_in_length_in_arguments_and_in_each_value():
    assert parse("task:" + "x" * 200).task == "x" * 200
    for text in (
        "task:" + "x" * 201,
        "task:x " + " " * 1000 + "queue:y",
        " ".join(f"args.a{n}:1" for n in range(9)),
    ):
        with pytest.raises(BadFilter):
            parse(text)


def test_the_names_of_states_are_those_of_stored_jobs():
    assert set(STATES) == {str(state) for state in State} - {"new"}


def test_what_is_not_text_is_refused_with_a_hint():
    with pytest.raises(BadJob, match="Pass the task's name"):
        JobFilter.only(task=print)  # type: ignore[arg-type]
