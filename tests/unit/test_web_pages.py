"""What pages say, from rows: overlaps of leaders, why a job waits, what happened to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from leasework.model.filter import quoted
from leasework.model.job import JobRecord
from leasework.model.masking import MASK, masked
from leasework.model.states import State
from leasework.store.rows import AttemptView, EventView, JobDetail, MinuteView, TermView
from leasework.watch.why import why_waiting
from leasework.web.charts import DAY, bars, ruler
from leasework.web.jobs import timeline
from leasework.web.leaders import election
from leasework.web.overview import rates
from leasework.web.schedules import told
from leasework.web.words import FILTERS, inline, short, term
from tests.support import rows as support
from tests.support.rows import EVENT, LEADER, TICK

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


# -- leaders ---------------------------------------------------------------------------------------
def led(token: int, worker: str, minutes: float) -> TermView:
    return TermView("app", token, worker, at(minutes))


def said(kind: str, worker: str, minutes: float, **fields: Any) -> EventView:
    return EVENT._replace(kind=kind, worker_id=worker, at=at(minutes), fields=fields)


def seen(events: list[EventView], leads: dict[str, int] | None = None) -> Any:
    row = LEADER._replace(name="app", holder="b", term=2)
    node = support.NODE._replace(worker_id="b", info={"leads": leads or {"app": 2}})
    terms = [led(2, "b", -10), led(1, "a", -30)]
    return election(row, terms, events, [node], NOW - HOUR, NOW)


def test_a_leader_that_noticed_late_overlaps_with_the_next():
    found = seen([said("lease_lost", "a", -9, name="app", term=1, why="renewal")])
    [overlap] = found.overlaps
    assert (overlap.old, overlap.new) == ("a", "b")
    assert (overlap.first, overlap.last) == (at(-10), at(-9))
    assert all('class="overlap"' in picture for _, picture in found.rows)


def test_a_leader_that_noticed_late_says_itself_how_long_it_believed():
    def at_end(seconds: object) -> Any:
        lost = said("lease_lost", "a", -9, name="app", term=1, why="expired", seconds=seconds)
        return seen([lost]).overlaps

    assert at_end(19.5 * 60) == []
    [overlap] = at_end(20.5 * 60)
    assert overlap.last == at(-9.5)
    assert at_end(90 * 60)[0].last == at(-9), "not after it wrote that it had ended"
    assert (
        at_end("x")
        == at_end(-5)
        == at_end(1e300)
        == seen([said("lease_lost", "a", -9, name="app", term=1)]).overlaps
    )


def test_leaders_one_after_the_other_do_not_overlap():
    lost = [said("lease_lost", "a", -11, name="app", term=1, why="renewal")]
    resigned = [said("lease_resigned", "a", -10.5, name="app", term=1, why="stopped")]
    buried = [said("node_died", "b", -10, dead="a", silent=10)]
    for events in (lost, resigned, buried, []):
        found = seen(events)
        assert found.overlaps == [] and [worker for worker, _ in found.rows] == ["b", "a"]


def test_what_a_process_believes_is_held_against_the_database():
    assert seen([]).beliefs == [("b", 2, True)]
    assert seen([], {"app": 1}).beliefs == [("b", 1, False)]
    assert seen([], {"other": 1}).beliefs == []


# -- why a job waits -------------------------------------------------------------------------------
JOB = JobRecord(
    id=UUID(int=1), task_name="send", queue="mail", payload={}, state=State.AVAILABLE, priority=0,
    created_at=NOW, scheduled_for=NOW, started_at=None, completed_at=None, attempt=1,
    max_attempts=5, claim_token=None, worker_id=None, last_error=None, result=None, progress=None,
    progress_note=None, cancel_requested=False, crashes=0, held_because=None,
)  # fmt: skip
NODE = support.NODE._replace(queues={"mail": 5}, info={"leads": {"app": 1}})
MORE = JobDetail(
    run_at=NOW, claimed_at=None, started_at=None, node=None, unique_key=None,
    requeue_seconds=None, timeout_seconds=None, history="full", ready=True, held_because=None,
    schedule=None, tick_at=None, ahead=0, now=NOW, version=1,
)  # fmt: skip


def test_why_an_available_job_waits():
    assert "No live node works the queue 'mail'" in why_waiting(JOB, MORE, [])[0]
    ignorant = NODE._replace(tasks=["other"])
    assert "knows the task 'send'" in why_waiting(JOB, MORE, [ignorant])[0]
    busy = why_waiting(JOB, MORE._replace(ahead=12), [NODE])
    assert busy == [
        "12 jobs of this queue come before it.",
        "1 live node works this queue, up to 5 jobs at once.",
    ]  # fmt: skip
    assert "1,000 or more jobs" in why_waiting(JOB, MORE._replace(ahead=1000), [NODE])[0]
    assert "It is next" in why_waiting(JOB, MORE, [NODE])[-1]
    alone = why_waiting(replace(JOB, crashes=1), MORE, [NODE])
    assert any("run alone" in sentence for sentence in alone)


def test_why_a_job_for_later_waits():
    later = replace(JOB, state=State.SCHEDULED, held_because="scheduled")
    more = MORE._replace(run_at=NOW + HOUR)
    assert why_waiting(later, more, [NODE]) == ["It was scheduled for later: it is due in 1 h."]
    tried = replace(JOB, state=State.RETRYABLE, held_because="retryable", attempt=2)
    assert "Attempt 2 of 5 failed; it is retried in 1 h" in why_waiting(tried, more, [NODE])[0]
    late = MORE._replace(run_at=NOW - HOUR)
    assert "No live node leads" in why_waiting(later, late, [NODE._replace(info={})])[-1]
    unknown = replace(JOB, state=State.SCHEDULED, held_because="unknown_task")
    assert "start a worker" in why_waiting(unknown, more, [NODE._replace(tasks=[])])[-1]
    newer = replace(JOB, state=State.SCHEDULED, held_because="unknown_version", last_error="no")
    second = more._replace(version=2)
    assert "a worker of a release that has it" in why_waiting(newer, second, [NODE])[-1]
    knows = NODE._replace(tasks=["send (version 2)"])
    assert "It is retried in 1 h" in why_waiting(newer, second, [NODE, knows])[-1]


def test_what_runs_or_has_finished_waits_for_nothing():
    for state in (State.RUNNING, State.COMPLETED, State.QUARANTINED):
        assert why_waiting(replace(JOB, state=state), MORE, []) == []


# -- what happened ---------------------------------------------------------------------------------
def test_the_timeline_of_a_job_that_failed_and_then_succeeded():
    done = replace(
        JOB, state=State.COMPLETED, started_at=at(5), completed_at=at(6), attempt=2, claim_token=9,
        worker_id="b",
    )  # fmt: skip
    tried = AttemptView(1, 7, "a", at(1), at(2), "crashed", "its worker died")
    events = [said("job_rescued", "b", 3, job="1", dead="a"), said("job_failed", "a", 2, job="1")]
    found = timeline(done, None, [tried], [e._replace(level="warning") for e in events])
    assert [moment["what"] for moment in found] == [
        "enqueued", "attempt 1 started", "attempt 1 ended: the worker died", "job rescued",
        "attempt 2 started", "completed",
    ]  # fmt: skip
    assert [moment["at"] for moment in found] == sorted(moment["at"] for moment in found)
    assert found[-1]["took"] == "1 min"


# -- schedules, figures ----------------------------------------------------------------------------
def test_secrets_are_masked_wherever_they_are():
    value = {"user": 1, "auth": {"API_KEY": "x", "n": [{"password": ["y"]}]}, "tokens": 3}
    assert masked(value) == {
        "user": 1, "auth": {"API_KEY": MASK, "n": [{"password": MASK}]}, "tokens": MASK,
    }  # fmt: skip
    deep: Any = "bottom"
    for _ in range(500):
        deep = {"a": deep}
    assert "bottom" not in str(masked(deep))
    assert inline({"user": 1, "password": "x"}) == f"user=1  password={MASK}"


def test_figures_are_short():
    assert [short(s) for s in (None, 0.0123, 3.21, 59, 3599, 7300)] == [
        "\N{EN DASH}", "12 ms", "3.2 s", "59 s", "60 min", "2 h 1 min",
    ]  # fmt: skip
    assert (term(7), term((1 << 32) + 3), term(None)) == ("7", "2.3", "\N{EN DASH}")


def test_a_value_is_quoted_for_the_filter():
    from leasework.model.filter import parse

    for text in ("plain", "two words", 'a "quote"', "back\\slash \\"):
        assert parse(f"task:{quoted(text)}").task == text


def test_the_rate_is_the_same_in_each_second_of_a_minute():
    """The history has a minute by half a minute after its end."""
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for second in range(60):
        now = at + timedelta(seconds=second)
        begun = [at - timedelta(minutes=n) for n in range(61)]
        rows = [
            MinuteView(minute, "q", "t", 60, 0, 0, 0, 0, {}, {})
            for minute in begun
            if minute + timedelta(minutes=1, seconds=30) <= now
        ]
        assert rates(rows, None, now)[""].per_minute == 60, second


def test_the_hour_is_drawn_without_a_division_by_zero():
    assert bars([(0, 0)] * 60, NOW).count("<rect") == 60
    assert 'class="bad"' in bars([(3, 1)], NOW)
    seoul = NOW.astimezone(ZoneInfo("Asia/Seoul"))
    assert bars([(3, 1)], seoul) == bars([(3, 1)], NOW), "their labels say UTC"
    assert ruler(seoul, seoul + DAY) == ruler(NOW, NOW + DAY)


@pytest.mark.parametrize(
    ("tick", "says", "marks"),
    [
        (("fired", "completed", 1.25, 0.01), "completed, took 1.2 s, 10 ms late", "completed"),
        (("fired", "completed", 0.5, 9.0), "completed, took 500 ms, 9.0 s late", "completed late"),
        (("fired", "discarded", 0.5, 0.0), "discarded, took 500 ms, 0 ms late", "discarded"),
        (("fired", "running", 3.0, 0.0), "running, for 3.0 s, 0 ms late", "running"),
        (("fired", "waiting", None, 0.0), "waiting, 0 ms late", "waiting"),
        (
            ("manual", "completed", 2.0, 0.0),
            "completed, took 2.0 s, run by hand",
            "completed manual",
        ),
        (("missed", "missed", None, 60.0), "missed", "missed"),
    ],
)
def test_a_tick_says_what_became_of_its_job(tick, says, marks):
    state, outcome, ran, late = tick
    row = TICK._replace(state=state, outcome=outcome, ran_seconds=ran, lateness_seconds=late)
    assert told(row) == {"says": says, "marks": marks}


# -- errors in lists -------------------------------------------------------------------------------
FRAMES = (
    "Traceback (most recent call last):\n"
    + '  File "/srv/app/a.py", line 1, in go\n    go()\n' * 40
)
RAISED = "ConnectionRefusedError: [Errno 111] Connect call failed"


@pytest.mark.parametrize(
    "stored",
    [
        f"{RAISED}\n{FRAMES}{RAISED}\n",  # as an attempt keeps it
        f"{RAISED}\n{FRAMES}"[:2000],  # ... and as a list gets it
        f"{FRAMES}{RAISED}\n",  # a bare traceback
        f"{FRAMES}{RAISED}\n  more of it\n",
        RAISED,
    ],
)
def test_a_list_shows_the_line_that_names_the_exception(stored: str) -> None:
    assert FILTERS["error_line"](stored) == RAISED


def test_an_error_is_cut_on_the_right_with_an_ellipsis() -> None:
    assert FILTERS["error_line"](f"ValueError: {'x' * 300}", 20) == "ValueError: xxxxxxx…"
    assert FILTERS["error_line"](None) == "" == FILTERS["error_line"]("\n")
