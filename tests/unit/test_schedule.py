"""When schedules fire: cron through daylight saving, intervals, one moment; bad input."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings, strategies as st

from leasework.errors import BadSchedule
from leasework.model.schedule import EPOCH, Cron, Every, Spec, cron, every, once

ZONES = ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Seoul", "Africa/Cairo")
START = datetime(2024, 1, 1, tzinfo=UTC)
END = datetime(2026, 1, 1, tzinfo=UTC)
SPECS: tuple[Spec, ...] = (
    cron("0 15 * * *", "Asia/Seoul"),
    cron("*/5 * * * * *"),
    cron("30 2 * * *", "Europe/Berlin"),
    every(seconds=30),
    every(seconds=1.5, anchor=datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)),
    once(at=datetime(2026, 3, 1, 12, tzinfo=ZoneInfo("Asia/Seoul"))),
)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(spec: Spec, start: datetime = START, end: datetime = END) -> Iterator[datetime]:
    tick = spec.next_after(start - timedelta(microseconds=1))
    while tick is not None and tick < end:
        yield tick
        tick = spec.next_after(tick)


def local_minutes(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[datetime]:
    """Every minute between, in local time: the slow and obvious way."""
    while start < end:
        yield start.astimezone(zone)
        start += timedelta(minutes=1)


def shift_days(name: str) -> list[datetime]:
    """Noon (UTC) of the days of the two years on which the zone's offset changes."""
    zone, days = ZoneInfo(name), [START + timedelta(hours=12 + 24 * n) for n in range(731)]
    offsets = [day.astimezone(zone).utcoffset() for day in days]
    return [b for b, old, new in zip(days[1:], offsets, offsets[1:], strict=False) if old != new]


# -- daylight saving ---------------------------------------------------------------------------
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", ["30 2 * * *", "15 1 * * *", "0 30 2 * * *", "45 1,2 * * *"])
def test_a_fixed_time_fires_once_on_each_local_day(zone: str, expression: str) -> None:
    per_day: dict[date, int] = {}
    for tick in fires(cron(expression, zone)):
        day = tick.astimezone(ZoneInfo(zone)).date()
        per_day[day] = per_day.get(day, 0) + 1
    times = expression.count(",") + 1
    whole = sorted(per_day)[1:-1]
    assert len(whole) >= 729
    assert {per_day[day] for day in whole} == {times}


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "expression", ["30 * * * *", "*/15 * * * *", "*/15 1-2 * * *", "7 */2 * * *"]
)
def test_a_wildcard_fires_at_each_instant_whose_local_time_matches(
    zone: str, expression: str
) -> None:
    spec = Cron(expression, zone)
    parsed = CronSim(expression, datetime(2024, 1, 1))
    for noon in [*shift_days(zone), START + timedelta(days=100)]:
        start, end = noon - timedelta(days=2), noon + timedelta(days=2)
        wanted = [
            local.astimezone(UTC)
            for local in local_minutes(ZoneInfo(zone), start, end)
            if local.minute in parsed.minutes and local.hour in parsed.hours
        ]
        assert list(fires(spec, start, end)) == wanted


@pytest.mark.parametrize(
    ("expression", "zone", "day", "wanted"),
    [
        # the gap: at its end, once, also when the next fixed time falls there
        ("30 2 * * *", "Europe/Berlin", "2024-03-31", ["01:00"]),
        ("0,30 2,3 * * *", "Europe/Berlin", "2024-03-31", ["01:00", "01:30"]),
        ("0 30 2 * * *", "Europe/Berlin", "2024-03-31", ["01:00"]),
        ("30 2 * * *", "America/New_York", "2024-03-10", ["07:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2024-10-04", ["15:45"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2024-10-05", ["15:30"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2024-10-06", ["15:15"]),
        # the hour that comes twice: the first pass
        ("30 2 * * *", "Europe/Berlin", "2024-10-27", ["00:30"]),
        ("0 30 2 * * *", "Europe/Berlin", "2024-10-27", ["00:30"]),
        ("30 1 * * *", "America/New_York", "2024-11-03", ["05:30"]),
        # a wildcard: both passes
        ("30 * 27 10 *", "Europe/Berlin", "2024-10-27", [f"{h:02}:30" for h in range(23)]),
        ("*/30 2 * * *", "Europe/Berlin", "2024-10-27", ["00:00", "00:30", "01:00", "01:30"]),
        ("*/30 2 * * *", "Europe/Berlin", "2024-03-31", []),
        # no daylight saving
        ("0 15 * * *", "Asia/Seoul", "2024-03-31", ["06:00"]),
    ],
)
def test_gap_and_fold(expression: str, zone: str, day: str, wanted: list[str]) -> None:
    start = utc(day)
    got = fires(cron(expression, zone), start, start + timedelta(days=1))
    assert [tick.strftime("%H:%M") for tick in got] == wanted


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Asia/Seoul", "UTC"])
@pytest.mark.parametrize("expression", ["30 2 * * *", "20 */2 * * *", "0 9 * * 1-5", "0 3 L * *"])
def test_where_shifts_are_whole_hours_it_agrees_with_cronsim(zone: str, expression: str) -> None:
    tzinfo = UTC if zone == "UTC" else ZoneInfo(zone)
    theirs = CronSim(expression, START.astimezone(tzinfo) - timedelta(seconds=1))
    for mine in fires(cron(expression, zone)):
        assert mine == next(theirs).astimezone(UTC)


@settings(max_examples=150, deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    expression=st.sampled_from(
        ["30 2 * * *", "0,15,45 1-3 * * *", "*/7 * * * *", "*/10 * 2 * * *", "0 */3 * * *"]
    ),
    data=st.data(),
)
def test_the_ticks_do_not_depend_on_where_one_starts(
    zone: str, expression: str, data: st.DataObject
) -> None:
    spec = cron(expression, zone)
    noon = data.draw(st.sampled_from([*shift_days(zone), START + timedelta(days=90)]))
    seconds = st.floats(-100_000, 100_000)
    a, b = sorted(noon + timedelta(seconds=data.draw(seconds)) for _ in range(2))
    after_a = spec.next_after(a)
    after_b = spec.next_after(b)
    assert after_a is not None and after_b is not None
    assert a < after_a <= after_b and b < after_b
    assert after_a == after_b or after_a <= b
    assert after_a.tzinfo is UTC
    # and nothing lies between: the instant before is answered by the tick itself
    assert spec.next_after(after_a - timedelta(microseconds=1)) == after_a


def test_monday_is_monday_and_a_restricted_day_and_weekday_are_either() -> None:
    assert {t.weekday() for t in fires(cron("0 9 * * 1"))} == {0}
    either = [t.day for t in fires(cron("0 0 13 * 5"), utc("2024-09-01"), utc("2024-10-01"))]
    assert either == [6, 13, 20, 27]
    assert [t.day for t in fires(cron("0 0 13 * 1"), utc("2024-09-01"), utc("2024-09-17"))] == [
        2,
        9,
        13,
        16,
    ]


def test_a_cron_with_seconds_fires_on_them() -> None:
    spec = cron("*/20 * * * * *")
    assert [t.second for t in fires(spec, START, START + timedelta(minutes=1))] == [0, 20, 40]


def test_the_end_of_the_calendar_is_the_end() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    for spec in (cron("0 0 29 2 *", "Europe/Berlin"), cron("* * * * *"), every(seconds=86_400)):
        assert spec.next_after(last) is None


# -- intervals and one moment ------------------------------------------------------------------
def test_processes_agree_on_an_interval_without_talking() -> None:
    spec = every(seconds=30)
    assert spec.next_after(utc("2026-01-01T00:00:29.999")) == utc("2026-01-01T00:00:30")
    assert spec.next_after(utc("2026-01-01T00:00:30")) == utc("2026-01-01T00:01:00")
    seven = every(seconds=7)
    tick = seven.next_after(START)
    assert tick is not None and (tick - EPOCH) % timedelta(seconds=7) == timedelta(0)


def test_an_anchor_is_a_phase_also_for_times_before_it() -> None:
    spec = every(seconds=3600, anchor=utc("2030-01-01T00:10:00"))
    assert spec.next_after(utc("2026-01-01T00:00:00")) == utc("2026-01-01T00:10:00")
    assert spec.next_after(utc("2031-01-01T00:10:00")) == utc("2031-01-01T01:10:00")


@given(
    micros=st.integers(1_000_000, 10**12),
    start=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
)
def test_an_interval_never_drifts(micros: int, start: datetime) -> None:
    spec = Every(micros / 1e6)
    tick = spec.next_after(start)
    assert tick is not None and start < tick <= start + timedelta(microseconds=micros)
    assert (tick - EPOCH) % timedelta(microseconds=micros) == timedelta(0)
    assert spec.next_after(tick) == tick + timedelta(microseconds=micros)


def test_once_fires_once_and_then_never_again() -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=ZoneInfo("Asia/Seoul"))
    spec = once(at=at)
    assert spec.next_after(START) == at
    assert spec.next_after(at) is None
    assert spec.first_at(at + timedelta(days=1)) == at
    assert every(seconds=60).first_at(at) == at + timedelta(seconds=60)


# -- values ------------------------------------------------------------------------------------
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.describe())
def test_json_there_and_back_is_the_same_value(spec: Spec) -> None:
    again = Spec.from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec and hash(again) == hash(spec)
    assert again.to_json() == spec.to_json()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (cron("0 15 * * *", "Asia/Seoul"), "At 15:00 every day (Asia/Seoul)"),
        (cron("@hourly"), "At the start of every hour (UTC)"),
        (every(seconds=30), "every 30 seconds"),
        (every(seconds=1), "every second"),
        (every(seconds=1.5), "every 1.5 seconds"),
        (every(seconds=300), "every 5 minutes"),
        (every(seconds=90), "every 90 seconds"),
        (every(seconds=86_400), "every day"),
        (
            every(seconds=60, anchor=utc("2026-01-01T00:00:10")),
            "every minute, counted from 2026-01-01 00:00:10 UTC",
        ),
        (SPECS[-1], "once at 2026-03-01 03:00:00 UTC"),
    ],
)
def test_a_schedule_describes_itself(spec: Spec, words: str) -> None:
    assert spec.describe() == words


def test_spelling_does_not_make_another_schedule() -> None:
    assert cron("0  9 * * mon ") == cron("0 9 * * MON")
    assert cron("@daily") == cron("0 0 * * *")
    assert every(seconds=60) == every(seconds=60.0)
    moment = datetime(2026, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    assert once(at=moment) == once(at=utc("2026-01-01T00:00:00"))


# -- bad input ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("expression", "zone", "says"),
    [
        ("61 * * * *", "UTC", "bad minute"),
        ("* * * *", "UTC", "wrong number of fields"),
        ("", "UTC", "wrong number of fields"),
        ("*/0 * * * *", "UTC", "bad minute"),
        ("0 0 32 * *", "UTC", "cannot be read: bad day-of-month"),
        ("0 0 30 2 *", "UTC", "cannot be read: bad day-of-month"),
        ("0 0 31 4,6 *", "UTC", "cannot be read: bad day-of-month"),
        ("0 0 */8 2 1#5", "UTC", "never fires"),
        ("*/90 * * * *", "UTC", "Use an interval"),
        ("0 0,*/25 * * *", "UTC", "longer than its field"),
        ("*/61 * * * * *", "UTC", "longer than its field"),
        ("@dayly", "UTC", "'@daily'"),
        ("* " * 300, "UTC", "too long"),
        (None, "UTC", "is text"),
        ("* * * * *", "Asia", "IANA"),
        ("* * * * *", "../etc/passwd", "unknown"),
        ("* * * * *", "", "unknown"),
        ("* * * * *", "a\0b", "unknown"),
        ("* * * * *", "right/Europe/Berlin", "unknown"),
        ("* * * * *", "localtime", "unknown"),
        ("* * * * *", None, "is a name"),
    ],
)
def test_a_bad_cron_is_refused_with_what_to_do(expression: str, zone: str, says: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        cron(expression, zone)
    assert says in str(caught.value)
    assert caught.value.do and caught.value.got is not ...
    assert len(str(caught.value)) < 500


def test_the_longest_steps_and_stored_ones_are_read() -> None:
    for expression in ("*/60 */24 */31 */12 */7", "@daily", "*/60 * * * * *", "0 0 L * 1#2"):
        assert cron(expression).expression
    stored = {"kind": "cron", "expression": "*/90 * * * *", "timezone": "UTC"}
    assert Spec.from_json(stored).to_json() == stored


@pytest.mark.parametrize(
    "seconds", [0, -1, 0.5, float("nan"), float("inf"), 1e12, True, "30", None, 10**400]
)
def test_a_bad_interval_is_refused(seconds: float) -> None:
    with pytest.raises(BadSchedule):
        every(seconds=seconds)


def test_a_time_without_a_zone_is_refused() -> None:
    naive = datetime(2026, 1, 1)
    for call in (
        lambda: once(at=naive),
        lambda: every(seconds=60, anchor=naive),
        lambda: cron("* * * * *").next_after(naive),
        lambda: once(at=date(2026, 1, 1)),  # type: ignore[arg-type]
        lambda: once(at=datetime.min.replace(tzinfo=ZoneInfo("Asia/Seoul"))),
        lambda: once(at=datetime.min.replace(tzinfo=UTC)),
        lambda: once(at=datetime.max.replace(tzinfo=UTC)),
    ):
        with pytest.raises(BadSchedule):
            call()


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"kind": "crn", "expression": "* * * * *", "timezone": "UTC"},
        {"kind": "cron"},
        {"kind": "cron", "expression": "* * * * *", "timezone": "UTC", "x": 1},
        {"kind": "every", "seconds": 30, "anchor": "2026-01-01T00:00:00"},
        {"kind": "every", "seconds": 30, "anchor": 7},
        {"kind": "once", "at": "tomorrow"},
        {"kind": ["once"], "at": "2026-01-01T00:00:00Z"},
    ],
)
def test_bad_json_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(BadSchedule):
        Spec.from_json(data)


field = st.text(alphabet="0123456789*,-/#LWMONSUJA²é ", max_size=8)


@settings(max_examples=250, deadline=None)
@given(st.lists(field, min_size=5, max_size=6).map(" ".join) | st.text(max_size=40))
def test_any_text_is_a_schedule_or_a_bad_schedule(text: str) -> None:
    try:
        spec = cron(text, "Europe/Berlin")
    except BadSchedule:
        return
    tick = spec.next_after(START)
    assert tick is not None and tick > START
    assert spec.describe()


def test_ten_thousand_different_walks_are_fast() -> None:
    spec = cron("30 2 * * *", "Europe/Berlin")
    started = time.process_time()
    for n in range(10_000):
        spec.next_after(START + timedelta(minutes=97 * n))
    assert time.process_time() - started < 2
