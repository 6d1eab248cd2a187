"""Missed ticks: each due tick is decided once, in order, by the policy."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from leasework.errors import BadSchedule
from leasework.model.missed import Missed, Plan, plan
from leasework.model.schedule import Spec, cron, every, once

NOW = datetime(2026, 3, 29, 12, 0, 0, tzinfo=UTC)
MINUTELY = every(seconds=60)


def ago(**units: float) -> datetime:
    return NOW - timedelta(**units)


def run(spec: Spec, since: datetime, policy: Missed, **changes: float) -> Plan:
    """A plan at NOW for everything after ``since``."""
    settings = {"grace_seconds": 30, "catch_up_seconds": 86_400, "limit": 100} | changes
    return plan(
        spec,
        high_water=since,
        next_at=spec.next_after(since),
        now=NOW,
        missed=policy,
        grace_seconds=settings["grace_seconds"],
        catch_up_seconds=settings["catch_up_seconds"],
        limit=int(settings["limit"]),
    )


def test_before_its_time_nothing_is_decided() -> None:
    high, following = ago(minutes=1), NOW + timedelta(microseconds=1)
    got = plan(
        MINUTELY,
        high_water=high,
        next_at=following,
        now=NOW,
        missed=Missed.ALL,
        grace_seconds=60,
        catch_up_seconds=60,
        limit=10,
    )
    assert got == Plan((), (), None, high, following)


@pytest.mark.parametrize("policy", Missed)
def test_ticks_on_time_all_fire_under_every_policy(policy: Missed) -> None:
    got = run(MINUTELY, ago(minutes=3), policy, grace_seconds=120)
    assert got.fires == (ago(minutes=2), ago(minutes=1), NOW)
    assert (got.missed, got.jumped) == ((), None) and not more(got)
    assert got.high_water == NOW and got.next_at == NOW + timedelta(minutes=1)


def test_late_ticks_by_policy_when_one_is_on_time() -> None:
    late, on_time = (ago(minutes=2), ago(minutes=1)), (NOW,)
    for policy in (Missed.SKIP, Missed.LATEST):
        got = run(MINUTELY, ago(minutes=3), policy)
        assert (got.fires, got.missed) == (on_time, late)
    got = run(MINUTELY, ago(minutes=3), Missed.ALL)
    assert (got.fires, got.missed) == (late + on_time, ())


def test_late_ticks_by_policy_when_none_is_on_time() -> None:
    hourly = cron("30 * * * *")
    ticks = tuple(ago(hours=n + 0.5) for n in (2, 1, 0))
    since = ago(hours=3)
    skipped = run(hourly, since, Missed.SKIP)
    assert (skipped.fires, skipped.missed) == ((), ticks)
    latest = run(hourly, since, Missed.LATEST)
    assert (latest.fires, latest.missed) == (ticks[2:], ticks[:2])
    assert run(hourly, since, Missed.ALL).fires == ticks


@pytest.mark.parametrize("policy", Missed)
def test_past_the_catch_up_window_nothing_fires(policy: Missed) -> None:
    daily = cron("0 6 * * *")
    got = run(daily, ago(days=2), policy, catch_up_seconds=3600, grace_seconds=1e18)
    assert (got.fires, got.missed) == ((), (ago(hours=30), ago(hours=6)))


@pytest.mark.parametrize("policy", Missed)
def test_a_forgotten_one_off_is_decided_once_and_is_over(policy: Missed) -> None:
    at = ago(hours=1)
    spec = once(at=at)
    got = plan(
        spec,
        high_water=None,
        next_at=spec.first_at(NOW),
        now=NOW,
        missed=policy,
        grace_seconds=30,
        catch_up_seconds=86_400,
        limit=10,
    )
    assert got.fires + got.missed == (at,)
    assert bool(got.fires) == (policy is not Missed.SKIP)
    assert (got.high_water, got.next_at) == (at, None)


def test_a_next_time_that_is_not_past_the_high_water_mark_is_not_believed() -> None:
    got = plan(
        MINUTELY,
        high_water=ago(minutes=1),
        next_at=ago(minutes=5),
        now=NOW,
        missed=Missed.ALL,
        grace_seconds=30,
        catch_up_seconds=3600,
        limit=10,
    )
    assert got.fires == (NOW,)


def more(got: Plan, now: datetime = NOW) -> bool:
    """Whether another call has ticks to decide."""
    return got.next_at is not None and got.next_at <= now


def test_the_limit_bounds_one_call_and_says_that_there_is_more() -> None:
    got = run(MINUTELY, ago(hours=1), Missed.ALL, limit=10)
    assert len(got.fires) == 10 and more(got) and got.jumped is None
    assert got.high_water == ago(minutes=50) and got.next_at == ago(minutes=49)


def test_a_long_outage_is_one_range_and_the_newest_tick_fires() -> None:
    secondly = every(seconds=2, anchor=NOW - timedelta(seconds=1))
    got = run(secondly, ago(days=3), Missed.LATEST, grace_seconds=0)
    first = secondly.next_after(ago(days=3))
    assert got.jumped == (first, ago(seconds=3))
    assert (got.fires, got.missed) == ((ago(seconds=1),), ()) and not more(got)

    skipped = run(secondly, ago(days=3), Missed.SKIP, grace_seconds=0)
    assert skipped.jumped == (first, ago(seconds=1))
    assert skipped.fires == () and skipped.high_water == ago(seconds=1)

    everything = run(secondly, ago(days=3), Missed.ALL, catch_up_seconds=3600)
    assert everything.jumped == (first, ago(seconds=3601))
    assert everything.fires[0] == ago(seconds=3599) and more(everything)


SPECS = (
    every(seconds=1),
    every(seconds=7, anchor=NOW + timedelta(seconds=2.5)),
    cron("* * * * *"),
    cron("*/20 * * * * *", "Australia/Lord_Howe"),
    cron("30 2 * * *", "Europe/Berlin"),
    cron("*/15 1-3 * * *", "Europe/Berlin"),
    once(at=NOW),
)


@settings(max_examples=300, deadline=None)
@given(
    spec=st.sampled_from(SPECS),
    policy=st.sampled_from(Missed),
    grace=st.sampled_from([0.0, 1.0, 30.0, 5000.0]),
    catch_up=st.sampled_from([0.0, 10.0, 600.0, 90_000.0]),
    limit=st.integers(1, 30),
    steps=st.lists(
        st.floats(0, 30) | st.floats(0, 3000) | st.floats(-60, 0), min_size=1, max_size=12
    ),
)
def test_each_tick_is_decided_once_and_in_order(
    spec: Spec, policy: Missed, grace: float, catch_up: float, limit: int, steps: list[float]
) -> None:
    start = now = datetime(2026, 3, 29, 0, 50, 0, tzinfo=UTC)  # Berlin's gap is in ten minutes
    high: datetime | None = None
    following = spec.next_after(start)
    decided: list[datetime] = []
    for step in [*steps, 0.0, 0.0]:
        now += timedelta(seconds=step)
        before = high
        got = plan(
            spec,
            high_water=high,
            next_at=following,
            now=now,
            missed=policy,
            grace_seconds=grace,
            catch_up_seconds=catch_up,
            limit=limit,
        )
        assert len(got.fires) + len(got.missed) <= limit
        assert not (got.jumped and got.missed)
        jumped = between(spec, *got.jumped) if got.jumped else []
        decided += [*jumped, *got.missed, *got.fires]
        assert got.high_water == (decided[-1] if decided else None)
        assert before is None or (got.high_water is not None and before <= got.high_water)
        check_policy(got, jumped, now, policy, min(grace, catch_up), catch_up)
        high, following = got.high_water, got.next_at
    wanted = []
    tick = spec.next_after(start)
    while tick is not None and len(wanted) < len(decided):
        wanted.append(tick)
        tick = spec.next_after(tick)
    assert decided == wanted
    assert following == tick


def between(spec: Spec, first: datetime, last: datetime) -> list[datetime]:
    ticks = [first]
    while ticks[-1] < last:
        following = spec.next_after(ticks[-1])
        assert following is not None
        ticks.append(following)
    assert ticks[-1] == last
    return ticks


def check_policy(
    got: Plan,
    jumped: list[datetime],
    now: datetime,
    policy: Missed,
    grace: float,
    catch_up: float,
) -> None:
    late_by = {t: (now - t).total_seconds() for t in (*jumped, *got.missed, *got.fires)}
    lost = [*jumped, *got.missed]
    assert all(seconds >= 0 for seconds in late_by.values())
    assert all(late_by[t] > grace for t in lost)
    assert all(late_by[t] <= catch_up for t in got.fires)
    late_fires = [t for t in got.fires if late_by[t] > grace]
    if policy is Missed.SKIP:
        assert not late_fires
    elif policy is Missed.LATEST:
        assert not late_fires or (got.fires == tuple(late_fires[-1:]) and not more(got, now))
        if not got.fires and lost and not more(got, now):
            assert late_by[lost[-1]] > catch_up
    else:
        assert all(late_by[t] > catch_up for t in lost)


def test_a_policy_is_parsed_with_a_suggestion() -> None:
    assert Missed.parse("latest") is Missed.LATEST
    with pytest.raises(BadSchedule, match="'latest'"):
        Missed.parse("lastest")


@pytest.mark.parametrize(
    "changes", [{"limit": 0}, {"grace_seconds": -1}, {"catch_up_seconds": float("nan")}]
)
def test_limits_out_of_range_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(BadSchedule):
        run(MINUTELY, ago(minutes=1), Missed.ALL, **changes)


@pytest.mark.parametrize("policy", Missed)
@pytest.mark.parametrize("spec", [every(seconds=1), cron("* * * * * *", "Europe/Berlin")])
def test_thirty_days_of_an_every_second_schedule_are_planned_at_once(
    spec: Spec, policy: Missed
) -> None:
    started = time.process_time()
    got = run(spec, ago(days=30), policy, catch_up_seconds=3600, limit=500)
    assert time.process_time() - started < 1.0, "one by one they take several seconds"
    assert got.jumped is not None and got.jumped[0] == ago(days=30) + timedelta(seconds=1)
    assert got.fires


def test_ten_thousand_due_schedules_are_planned_in_the_time_of_sixty_million_additions() -> None:
    # it takes a tenth of that on a quiet machine; a busy one slows both, but not always alike
    spec = cron("* * * * *", "Asia/Seoul")
    adding = planning = 0.0
    for _ in range(20):  # by turns: its speed changes from one moment to the next
        began, added = time.process_time(), 0
        for number in range(200_000):
            added += number
        halfway = time.process_time()
        for _ in range(500):
            got = run(spec, ago(minutes=1), Missed.LATEST)
        adding += halfway - began
        planning += time.process_time() - halfway
    assert planning < 15 * adding, f"{planning / adding:.1f} times"
    assert got.fires == (NOW,)
