"""From an outcome to what is written: ``decide``, and the table of moves it must keep to."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from leasework.config import Limits
from leasework.errors import BadJob
from leasework.model.backoff import Backoff
from leasework.model.job import ClaimedJob
from leasework.model.outcome import (
    Cancel,
    Complete,
    Discard,
    Fail,
    Outcome,
    Snooze,
    Unknown,
    decide,
    outcome_of,
)
from leasework.model.states import FINISHED, WAITING, State
from tests.support.transitions import NEW, TRANSITIONS

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job(attempt: int = 1, max_attempts: int = 5, crashes: int = 0) -> ClaimedJob:
    return ClaimedJob(
        UUID(int=1), "t", "q", {}, 0, attempt, max_attempts, crashes, 7, None, None, NOW, True,
        None,
    )  # fmt: skip


texts = st.text() | st.just("\x00") | st.just("\ud800")
outcomes = st.one_of(
    st.builds(Complete, st.none() | st.just("{}")),
    st.builds(Fail, texts),
    st.builds(Snooze, st.floats(0, 1000)),
    st.builds(Cancel, texts | st.integers()),  # type: ignore[arg-type]
    st.builds(Discard, texts | st.none()),  # type: ignore[arg-type]
    st.builds(Unknown),
)
jobs = st.builds(job, st.integers(1, 50), st.integers(1, 50), st.integers(0, 5))


@given(jobs, outcomes, st.floats(0, 1, exclude_max=True))
def test_a_decision_is_a_move_of_the_table_and_can_be_stored(
    claimed: ClaimedJob, outcome: Outcome, draw: float
) -> None:
    decision = decide(claimed, outcome, Backoff(), draw)
    assert (State.RUNNING, decision.state) in TRANSITIONS
    assert decision.state not in (State.AVAILABLE, State.QUARANTINED)  # not the acker's to give
    if decision.state in FINISHED:
        assert decision.run_in == 0
    else:
        assert decision.run_in >= 0 and (decision.held_because or not isinstance(outcome, Snooze))
    if decision.error is not None:
        decision.error.encode()
        assert "\x00" not in decision.error and len(decision.error) <= Limits.error_chars
    assert (decision.result is not None) <= isinstance(outcome, Complete)


@given(jobs, outcomes)
def test_only_runs_that_failed_count(claimed: ClaimedJob, outcome: Outcome) -> None:
    assert decide(claimed, outcome, Backoff(), 0).counts is not isinstance(
        outcome, (Snooze, Unknown)
    )


@pytest.mark.parametrize(
    ("attempt", "max_attempts", "crashes", "state"),
    [
        (1, 1, 0, State.DISCARDED), (1, 2, 0, State.RETRYABLE), (2, 2, 0, State.DISCARDED),
        (2, 2, 1, State.RETRYABLE), (3, 2, 1, State.DISCARDED),
    ],
)  # fmt: skip
def test_failures_count_against_max_attempts_and_crashes_do_not(
    attempt: int, max_attempts: int, crashes: int, state: State
) -> None:
    assert decide(job(attempt, max_attempts, crashes), Fail("e"), Backoff(), 0).state is state


@given(st.integers(1, 200), st.floats(0, 1, exclude_max=True))
def test_backoff_grows_to_its_longest_within_its_jitter(failures: int, draw: float) -> None:
    backoff = Backoff(base=2, factor=3, longest=100, jitter=0.5)
    middle = min(2 * 3.0 ** (failures - 1), 100)
    assert middle * 0.5 <= backoff.seconds(failures, draw) <= middle * 1.5


@pytest.mark.parametrize(
    ("failures", "options", "seconds"),
    [
        (200, {"base": 1, "factor": 1.05}, 3600), (100, {"base": 1, "factor": 1.05}, 1.05**99),
        (999, {"factor": 100}, 3600), (999, {"base": 0, "factor": 100}, 0),
        (32767, {"base": 1e-300, "longest": 1e-299, "factor": 2}, 1e-299),
    ],
)  # fmt: skip
def test_a_backoff_follows_its_formula_after_any_number_of_failures(
    failures: int, options: Any, seconds: float
) -> None:
    assert Backoff(jitter=0, **options).seconds(failures, 0.5) == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize(
    "options",
    [{"base": -1}, {"factor": 0.5}, {"longest": 1}, {"jitter": 1.1}, {"base": float("nan")},
     {"longest": float("inf")}, {"longest": 1e300}, {"base": "2"}],
    ids=str,
)  # fmt: skip
def test_a_backoff_that_makes_no_sense_is_refused(options: Any) -> None:
    with pytest.raises(BadJob):
        Backoff(**options)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "5", True, 366 * 86400 + 1])
def test_a_snooze_has_limits(seconds: Any) -> None:
    with pytest.raises(BadJob):
        Snooze(seconds)


@pytest.mark.parametrize("kind", [Cancel, Discard])
def test_a_reason_without_a_text_is_told_all_the_same(kind: Any) -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError

    decision = decide(job(1, 5, 0), kind(Mute()), Backoff(), 0)
    assert decision.error == "(its str() raised RuntimeError)"


@pytest.mark.parametrize("kind", [Cancel, Discard])
def test_a_reason_holds_no_secret(kind: Any) -> None:
    said = "no connection to postgresql://u:s3cr:et@db/x"
    decision = decide(job(1, 5, 0), kind(said), Backoff(), 0)
    assert decision.error == "no connection to postgresql://u:••••••@db/x"


def test_a_result_is_told_from_an_outcome() -> None:
    assert outcome_of("t", Snooze(1), 100) == Snooze(1)
    assert outcome_of("t", {"a": 1}, 100) == Complete('{"a":1}')
    assert outcome_of("t", None, 100) == Complete(None)


def test_a_coroutine_that_nobody_awaited_is_no_result() -> None:
    async def handler() -> None: ...

    outcome = outcome_of("t", handler(), 100)
    assert isinstance(outcome, Discard) and "that was never awaited" in outcome.reason


class _Raising(dict[str, int]):
    def items(self) -> Any:
        raise LookupError("its own trouble")


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (Decimal(1), ("of type Decimal that", "Object of type Decimal is not JSON serializable")),
        ({"at": datetime.now(UTC)}, ("of type dict that", "Object of type datetime")),
        ("x" * 101, ("of type str that", "103 bytes, over the limit of 100")),
        ("\x00", ("of type str that", "NUL")),
        (Complete("1"), ("of type Complete that", "not JSON")),
        (_Raising(a=1), ("of type _Raising that", "LookupError: its own trouble")),
    ],
)
def test_a_result_that_cannot_be_stored_discards_the_job(
    returned: Any, words: tuple[str, ...]
) -> None:
    outcome = outcome_of("t", returned, 100)
    assert isinstance(outcome, Discard)
    for part in (*words, "does not run again", "an id instead of an object"):
        assert part in outcome.reason


def test_every_state_can_be_reached_and_every_unfinished_one_left() -> None:
    reached: set[str] = {NEW}
    while more := {b for a, b in TRANSITIONS if a in reached} - reached:
        reached |= more
    assert reached == {NEW, *State}
    assert set(State) - FINISHED <= {a for a, _ in TRANSITIONS}
    assert WAITING.isdisjoint(FINISHED)
    assert not any(b == NEW for _, b in TRANSITIONS)
