"""The filter language: what it understands, and how it refuses the rest."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from uuid import UUID

import pytest
from leasework_lab.sim.store_operator import class_of

from leasework.errors import BadFilter, BadJob
from leasework.model.filter import STATES, Condition, JobFilter, parse, quoted
from leasework.model.fingerprint import fingerprint, pattern
from leasework.model.history import added, class_seconds, percentile
from leasework.model.states import State

A, B = UUID(int=1 << 90), UUID(int=1 << 91)


def test_each_key_is_understood():
    found = parse(' state:running  queue:mail task:"a b" node:web-1:42 ')
    assert found == JobFilter("running", "mail", "a b", "web-1:42")
    assert parse("") == parse("  ") == JobFilter()


def test_arguments_are_a_path_and_a_text():
    found = parse('args.user_id:42 args.address.city:"New \\"York\\""').terms
    assert found == (Condition("args.user_id", "42"), Condition("args.address.city", 'New "York"'))


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
    for text in ("args.user.Password:guess", "args.password:g*", "-args.password:guess"):
        with pytest.raises(BadFilter, match="masked"):
            parse(text, masked)
    assert parse("args.user:guess", masked).terms


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


def test_a_star_stands_for_anything_unless_it_is_quoted():
    assert parse("task:send*").terms == (Condition("task", "send%"),)
    assert parse(r"task:50%_\*").terms == (Condition("task", r"50\%\_\\%"),)
    assert parse('task:"send*"') == JobFilter(task="send*")
    assert parse(f"task:{quoted('send*')}") == JobFilter(task="send*")
    assert parse("error:refused schedule:n*").terms == (
        Condition("error", "%refused%"),
        Condition("schedule", "n%"),
    )


def test_a_minus_negates():
    found = parse("-queue:mail -args.who:kim -state:completed -state:running")
    assert found.terms == (Condition("queue", "mail", False), Condition("args.who", "kim", False))
    assert found.not_states == ("completed", "running")
    assert parse("-error:0123456789ab").terms == (Condition("fingerprint", "0123456789ab", False),)
    assert parse("error:0123456789ab").fingerprint == "0123456789ab"


def test_times_are_moments_or_ago():
    assert (parse("since:90s").since, parse("until:2h").until) == (90, 7200)
    assert parse("since:7d").since == 7 * 86400 and parse("since:5min") == parse("since:5m")
    assert parse("since:2026-01-31T07:00").since == datetime(2026, 1, 31, 7, tzinfo=UTC)
    assert parse("since:2026-01-31T07:00+09:00").since == datetime(2026, 1, 30, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    "text, says",
    [
        ("-node:x", "Did you mean 'node'"),
        ("-running", "has no key"),
        ("-queue:", "needs a value"),
        ("state:run*", "unknown state"),
        ("state:running -state:completed", "exclude each other"),
        ("since:soon", "Like since:2h"),
        ("since:0001-01-01", "takes a time"),
        ("since:1h since:2h", "twice"),
        ("error:0123456789ab error:0123456789ab", "twice"),
        ("-task:" + "x" * 201, "at most 200"),
        (" ".join(["-task:x"] * 9), "at most 8"),
    ],
)
def test_new_filters_that_are_wrong_are_refused_with_a_hint(text, says):
    with pytest.raises(BadFilter, match=re.escape(says)):
        parse(text)


@pytest.mark.parametrize(
    "errors, same",
    [
        (["ConnectionError: host db-7:5432 refused", "ConnectionError: host 'x y' refused"], "…"),
        (["KeyError: 'user_12'", "KeyError: 4"], "KeyError: …"),
        (["E: 3f2504e0-4f89-11d3-9a0c-0305e82c3301, 17 left", "E: 7, 8.5 left"], "E: … left"),
        (["S3Error: a.b@example.org at fe80::1", "S3Error: 0x7f12 at 10.0.0.7"], "… at …"),
        (["V: can't open 'a'\nDETAIL: x", 'V: can\'t open "b"'], "V: can't open …"),
        (["its worker died"], "its worker died"),
    ],
)
def test_errors_that_differ_in_numbers_and_names_have_one_fingerprint(errors, same):
    assert len({fingerprint(error) for error in errors}) == 1
    assert all(same in pattern(error) for error in errors)


def test_errors_of_different_classes_or_words_differ():
    errors = ["S3Error: no", "S4Error: no", "S3Error: yes", ""]
    assert len({fingerprint(error) for error in errors}) == len(errors)
    assert len(pattern("E: " + "x" * 9999)) <= 200


@pytest.mark.parametrize("text", ['"', "'", "a-", ":", "a:", "1 ", "a@", "a.", "0", "…"])
def test_a_long_error_takes_no_long_time(text):
    assert len(fingerprint(text * 100_000)) == 12
