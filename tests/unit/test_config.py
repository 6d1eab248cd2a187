"""Settings: arguments over environment over defaults; what does not fit is named at the start."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from leasework import App
from leasework.config import (
    CLOCK_RATE_ERROR,
    MAX_RECOVER_WITHIN,
    MIN_RECOVER_WITHIN,
    OTHER_VARIABLES,
    Limits,
    Polling,
    Retention,
    Settings,
    Timings,
    wait_seconds,
)
from leasework.errors import ConfigError, LeaseworkError, shorten, storable, suggest


# -- where settings come from ------------------------------------------------------------------
def test_arguments_win_over_the_environment_and_that_over_defaults() -> None:
    environ = {"LEASEWORK_NAME": "billing", "LEASEWORK_GRACE": "3", "LEASEWORK_LISTEN": "off"}
    settings = Settings.load({"grace": 5, "dsn": None}, environ)
    assert (settings.name, settings.grace, settings.listen) == ("billing", 5.0, False)
    assert Settings.load({}, {}).recover_within == 15


def test_a_server_that_reloads_has_a_short_grace_unless_one_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for command in (["uvicorn", "--reload", "main:web"], ["fastapi", "dev", "main.py"]):
        monkeypatch.setattr(sys, "argv", command)
        assert Settings.load({}, {}).grace == 0.5
        assert Settings.load({"grace": 10.0}, {}).grace == 10.0
        assert Settings.load({}, {"LEASEWORK_GRACE": "3"}).grace == 3.0
    monkeypatch.setattr(sys, "argv", ["uvicorn", "main:web", "--app-dir", "dev"])
    assert Settings.load({}, {}).grace == 10.0


def test_what_is_in_seconds_takes_a_timedelta() -> None:
    assert Polling(stage=timedelta(seconds=2)).stage == 2.0  # type: ignore[arg-type]
    kept = Retention(catch_up_seconds=timedelta(hours=1))  # type: ignore[arg-type]
    assert kept.catch_up_seconds == 3600.0


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Polling(stage=-1), "Polling.stage"),
        (lambda: Polling(listening="10"), "Polling.listening"),  # type: ignore[arg-type]
        (lambda: Retention(finished_days=timedelta(days=1)), "Retention.finished_days"),  # type: ignore[arg-type]
        (lambda: Limits(batch_rows=True), "Limits.batch_rows"),
    ],
)
def test_a_number_that_cannot_be_is_named(make: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()


@pytest.mark.parametrize("word", ["1", "true", "Yes", " ON "])
def test_words_for_true(word: str) -> None:
    assert Settings.load({}, {"LEASEWORK_LISTEN": word}).listen is True


@pytest.mark.parametrize(
    ("name", "text"),
    [("LISTEN", "maybe"), ("GRACE", "ten"), ("WORK_CONNECTIONS", "1.5"), ("GRACE", "nan"),
     ("PAYLOAD_LIMIT", ""), ("CALL_TIMEOUT", "inf")],
)  # fmt: skip
def test_an_environment_variable_that_cannot_be_read_is_named(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"(?i){name}") as caught:
        Settings.load({}, {f"LEASEWORK_{name}": text})
    assert shorten(text) in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("RECOVER_WITHN", "RECOVER_WITHIN"), ("DNS", "DSN"), ("SCHEMAS", "SCHEMA"),
     ("WEB_TOKENS", "WEB_TOKEN"), ("dsn", "DSN")],
)  # fmt: skip
def test_an_unknown_environment_variable_is_refused_with_the_nearest_right_name(
    wrong: str, right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"LEASEWORK_{wrong}", "1")
    with pytest.raises(
        ConfigError, match=f"unknown environment variable LEASEWORK_{wrong}.*{right}.*unset it"
    ):
        App()


def test_variables_that_something_else_reads_are_left_alone() -> None:
    others = (
        "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_5432_TCP",
        "PORT_5432_TCP_ADDR", "WEB_SERVICE_HOST", "WEB_PORT_80_TCP_PROTO", "TEST_ANYTHING",
    )  # fmt: skip
    environ = dict.fromkeys(OTHER_VARIABLES, "x") | {f"LEASEWORK_{name}": "x" for name in others}
    assert Settings.load({}, {**environ, "leasework_dsn": "x", "OTHER": "x"}) == Settings()


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("recover_wihtin", "recover_within"), ("DSN", "dsn"), ("schemas", "schema"),
     ("payload_limits", "payload_limit"), ("worker_connections", "work_connections")],
)  # fmt: skip
def test_an_unknown_option_is_refused_with_the_nearest_right_name(wrong: str, right: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option '{wrong}'.*'{right}'"):
        App(**{wrong: 1})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"recover_within": 1}, "nearest allowed value is 9 seconds"),
        ({"recover_within": 1e9}, "nearest allowed value is 3600 seconds"),
        ({"recover_within": "15"}, "recover_within must be seconds, as a number or a timedelta"),
        ({"recover_within": float("nan")}, "recover_within"),
        ({"recover_within": True}, "recover_within must be seconds, as a number"),
        ({"call_timeout": float("nan")}, "call_timeout"),
        ({"grace": float("inf")}, "grace"),
        ({"grace": -1}, "grace must be at least 0"),
        ({"work_connections": 0}, "work_connections must be at least 1"),
        ({"work_connections": 1.5}, "work_connections must be a whole number"),
        ({"listen": 1}, "listen must be True or False"),
        ({"schema": "Public"}, "plain lower-case SQL name"),
        ({"schema": "a; drop"}, "plain lower-case SQL name"),
        ({"name": ""}, "name must be text"),
        ({"name": "a\x00"}, "no NUL"),
        ({"name": "\ud800"}, "surrogate"),
        ({"release": "x" * 201}, "at most 200"),
        ({"log": "xml"}, "'text' or 'json'"),
        ({"limits": 5}, "limits must be an object of leasework.Limits"),
        ({"retention": {"ticks_days": 3}}, "retention must be an object of leasework.Retention"),
        ({"retention": Retention(ticks_days=1)}, "ledger must be kept longer"),
        ({"retention": Retention(catch_up_seconds=0)}, "at least 60"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        App("postgresql://", **options)


@pytest.mark.parametrize("given", [{"max_crashes": 1}, {"batch_rows": 0}, {"result_bytes": -1}])
def test_a_limit_that_would_stop_everything_is_refused(given: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=rf"Limits.{next(iter(given))} must be at least"):
        Limits(**given)


def test_another_process_gets_the_settings_by_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in [name for name in os.environ if name.startswith("LEASEWORK_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("LEASEWORK_GRACE", "30")
    given = {"dsn": "postgresql://", "listen": False, "grace": 10, "overdue_seconds": 90}
    made = Settings.load(given)
    passed = made.to_environ()
    assert sorted(passed) == [
        "LEASEWORK_DSN", "LEASEWORK_GRACE", "LEASEWORK_LISTEN", "LEASEWORK_OVERDUE_SECONDS",
    ]  # fmt: skip
    assert Settings.load({}, passed) == made


# -- timings -----------------------------------------------------------------------------------
@given(st.floats(MIN_RECOVER_WITHIN, MAX_RECOVER_WITHIN))
def test_the_timings_of_every_setting_keep_the_protocols_inequalities(seconds: float) -> None:
    t = Timings.derive(seconds)
    assert t.trust > 2 * t.renew + t.call_timeout
    assert t.lease >= 6 - 1e-9
    assert t.failover < t.recover_within
    # a holder whose clock is slow stops before a candidate whose clock is fast takes over
    assert t.trust * (1 + CLOCK_RATE_ERROR) < wait_seconds(t.lease) / (1 + CLOCK_RATE_ERROR)


def test_the_default_timings_are_those_of_the_specification() -> None:
    t = Settings().timings
    assert (t.recover_within, t.lease, t.renew) == (15, 10, 2)
    assert t.failover == pytest.approx(13.2, abs=0.1)


# -- words -------------------------------------------------------------------------------------
def test_a_message_says_what_it_got_and_what_to_do() -> None:
    error = LeaseworkError("it failed", got=[1], do="Do that")
    assert str(error) == "it failed. Got: [1]. Do that."
    assert str(LeaseworkError("Why?", got="text")) == "Why? Got: text."


def test_messages_stay_short_and_never_fail() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise ValueError

    assert len(shorten("x" * 10_000)) == 200
    assert shorten(Rude()) == "<Rude>" and shorten(10**5000) == "<int>"


@given(st.text() | st.text(alphabet="\x00\ud800a"))
def test_what_is_storable_is_stored_as_it_is(text: str) -> None:
    stored = storable(text)
    stored.encode()
    assert "\x00" not in stored and storable(stored) == stored
    if stored != text:
        assert "\x00" in text or any("\ud800" <= c <= "\udfff" for c in text)


def test_a_suggestion_names_the_nearest_or_lists_all() -> None:
    assert suggest("qeue", ["queue", "priority"]) == "Did you mean 'queue'?"
    assert suggest("zzz", ["b", "a"]) == "Known: a, b."
    assert suggest("zzz", []) == "Known: none."
