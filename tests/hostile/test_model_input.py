"""Whatever is given to a schedule, a job, a setting, a DSN: a clear error, or what was meant."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given, strategies as st

from leasework import App
from leasework.config import ROUND_TRIPS_SECONDS, Settings
from leasework.errors import BadJob, BadSchedule, ConfigError, LeaseworkError, WrongDsn
from leasework.model.job import JOB_OPTIONS, OnConflict, decode
from leasework.model.missed import Missed
from leasework.model.schedule import Spec, cron, every, once
from leasework.pg.connection.dsn import read_dsn
from tests.hostile.strategies import clear, mixed, odd_text, odd_values, quick, refused_or

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
moments = st.datetimes(timezones=st.none() | st.just(UTC)) | st.builds(
    lambda when, minutes: when.replace(tzinfo=timezone(timedelta(minutes=minutes))),
    st.datetimes(),
    st.integers(-1439, 1439),
)

# -- schedules -------------------------------------------------------------------------------------
part = st.from_regex(r"\A([*]|[0-9]{1,3}|[0-9]-[0-9]{1,2}|L|LW|[A-Z]{3}|[0-9]#[0-9])\Z")
cron_field = st.builds(
    lambda parts, step: ",".join(parts) + step,
    st.lists(part, min_size=1, max_size=3),
    st.sampled_from(["", "", "/2", "/0", "/99", "/-1", "/x"]),
)
expressions = st.lists(cron_field, min_size=4, max_size=7).map(" ".join) | odd_text


def holds(spec: Spec) -> None:
    """It walks forward, says what it is, and comes back from JSON the same."""
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    spec.describe().encode()
    at = NOW
    for _ in range(3):
        following = spec.next_after(at)
        if following is None:
            return
        assert following > at and following.tzinfo is UTC
        at = following


@quick
@given(expressions, st.sampled_from(["UTC", "Asia/Seoul", "Australia/Lord_Howe"]) | odd_text)
def test_a_cron_expression_is_refused_or_walks_forward(expression: str, zone: str) -> None:
    spec = refused_or(lambda: cron(expression, zone))
    if spec is not None:
        holds(spec)


@quick
@example(seconds=-(10**400), anchor=None)
@given(odd_values | st.floats(0.9, 1e9), st.none() | moments | odd_values)
def test_an_interval_is_refused_or_walks_forward(seconds, anchor) -> None:
    spec = refused_or(lambda: every(seconds=seconds, anchor=anchor))
    if spec is not None:
        holds(spec)
    moment = refused_or(lambda: once(at=anchor))
    if moment is not None:
        holds(moment)


@quick
@given(
    odd_values
    | st.fixed_dictionaries(
        {"kind": mixed("cron", "every", "once")},
        optional={
            "expression": mixed("0 * * * *"), "timezone": mixed("UTC"), "seconds": mixed(5),
            "anchor": mixed("2026-01-01T00:00:00+00:00"), "at": mixed("2026-01-01T00:00:00Z"),
        },
    )
)  # fmt: skip
def test_a_schedule_read_from_the_database_is_refused_or_holds(data) -> None:
    spec = refused_or(lambda: Spec.from_json(data))
    if spec is not None:
        holds(spec)


@quick
@given(
    mixed("0 * * * *"), mixed("latest", "skip"), mixed(0, 5.0), mixed("s"), mixed({}, {"n": 1})
)  # fmt: skip
def test_a_schedules_options_are_refused_or_hold(expression, missed, grace, name, arguments):
    app = App("postgresql://")

    def register() -> object:
        options = {"missed": missed, "grace_seconds": grace, "name": name, "arguments": arguments}

        @app.periodic(expression, **options)
        def tick(n: int = 0) -> None: ...

        return tick

    if refused_or(register) is None:
        assert not app._planned
    else:
        [planned] = app._planned.values()
        assert planned.missed in list(Missed) and math.isfinite(planned.grace_seconds)


# -- jobs ------------------------------------------------------------------------------------------
options = st.fixed_dictionaries(
    {},
    optional={
        "queue": mixed("q"), "priority": mixed(5), "run_at": mixed(NOW) | moments,
        "run_in": mixed(3.0), "max_attempts": mixed(3), "timeout": mixed(1.5),
        "requeue_after": mixed(60), "unique": mixed("k"), "unique_for": mixed(60.0),
        "on_conflict": mixed("return", "raise", OnConflict.REPLACE), "history": mixed(True),
    },
)  # fmt: skip


@quick
@given(odd_values, options)
def test_a_job_is_refused_or_is_what_was_asked_for(payload, given_options) -> None:
    app = App("postgresql://")

    @app.task(name="t")
    def work(value: object = None) -> None: ...

    job = refused_or(lambda: work.using(**given_options).job(value=payload))
    if job is None:
        return
    assert same(decode(job.payload)["value"], payload)
    request = json.loads(json.dumps(job.as_request(app.env.new_id(), 1 << 20), allow_nan=False))
    for name in JOB_OPTIONS:
        if given_options.get(name) is None:
            continue
        if name == "run_at":
            assert datetime.fromisoformat(request[name]) == given_options[name]
        elif name == "history":
            assert request.get(name, True) == given_options[name]
        elif name in request:
            assert request[name] == given_options[name]


def same(read, meant) -> bool:
    """Equal as JSON sees it: keys are text, a tuple is a list."""
    return read == json.loads(json.dumps(meant))


@quick
@given(st.text(max_size=8), mixed(3))
def test_an_unknown_option_of_a_task_is_refused(name: str, value) -> None:
    app = App("postgresql://")
    known = ("name", "queue", "priority", "timeout", "max_attempts", "requeue_after", "backoff",
             "history", "executor")  # fmt: skip
    if name in known:
        return
    with pytest.raises(LeaseworkError) as caught:
        app.task(**{name: value})
    clear(caught.value)


# -- settings --------------------------------------------------------------------------------------
PLAIN = [f.name for f in fields(Settings) if isinstance(f.default, (str, int, float, bool))]


@quick
@given(st.dictionaries(st.sampled_from(PLAIN), odd_text | st.integers().map(str), max_size=4))
def test_the_environment_is_refused_or_gives_settings_that_hold(texts: dict[str, str]) -> None:
    environ = {f"LEASEWORK_{name.upper()}": text for name, text in texts.items()}
    made = refused_or(lambda: Settings.load({}, environ))
    if made is not None:
        sound(made)


@quick
@given(st.dictionaries(st.sampled_from(PLAIN) | odd_text, mixed(1, 20.0, "text", "a"), max_size=4))
def test_options_of_the_app_are_refused_or_hold(given_options) -> None:
    made = refused_or(lambda: Settings.load(given_options, {}))
    if made is not None:
        sound(made)


def sound(made: Settings) -> None:
    times = made.timings
    assert times.lease >= 6 - 1e-9 and times.trust > 2 * times.renew + times.call_timeout
    assert times.failover + ROUND_TRIPS_SECONDS <= times.recover_within
    numbers = (made.call_timeout, made.grace, made.recover_within)
    assert all(math.isfinite(number) and 0 <= number <= 7 * 86400 for number in numbers)
    assert re.fullmatch("[a-z_][a-z0-9_]*", made.schema)
    assert 1 <= made.payload_limit < 1 << 30 and 1 <= made.work_connections <= 1000
    for text in (made.dsn, made.name, made.release):
        assert "\x00" not in text
        text.encode()


def test_a_number_of_hundreds_of_digits_is_refused() -> None:
    for wrong in (10**400, 10**5000):
        with pytest.raises(ConfigError, match="recover_within"):
            App("postgresql://", recover_within=wrong)


# -- the DSN ---------------------------------------------------------------------------------------
SECRET = "hunter2SECRET"
schemes = st.sampled_from(
    ["postgresql://", "postgres://", "postgresql+asyncpg://", "mysql://", "jdbc:postgresql://",
     "Postgresql://", "postgresql:/", "", '"postgresql://', " postgresql://", "host="]
)  # fmt: skip
dsns = st.builds(
    "{}{}:{}{}@{}{}".format,
    schemes,
    odd_text,
    st.just(SECRET),
    odd_text,
    st.sampled_from(["h", "h1:1,h2:2", "h:x", "h:70000", "[::1", "a,b,c:1,2"]) | odd_text,
    st.sampled_from(["", "/d", "/%zz", "/%00", "?nope=1", "?port=0"]) | odd_text,
)


@quick
@given(dsns | odd_text)
def test_a_dsn_is_read_or_refused_without_a_piece_of_its_password(dsn: str) -> None:
    try:
        parts = read_dsn(dsn)
    except WrongDsn as error:
        clear(error)
        assert SECRET not in str(error) and SECRET not in repr(error.got)
        assert error.__context__ is None or error.__suppress_context__
    else:
        for port in str(parts.get("port") or "").split(","):
            assert port == "" or 1 <= int(port) <= 65535


@pytest.mark.parametrize(
    ("dsn", "words"),
    [
        ("postgress://h/d", "unknown scheme. Got: postgress. Use postgresql://"),
        ("postgresql+psycopg://u:p@h/d", "what follows the \\+ is for SQLAlchemy"),
        ("Postgresql://h/d", "Use postgresql://"),
        ("mysql://h/d", "Got: mysql. Use postgresql://"),
        ("jdbc:postgresql://h/d", "Use postgresql://"),
        ("embeded", "or embedded"),
        ("localhost:5432/d", "neither a URL nor key=value. Use postgresql://"),
        ("postgresql://h:70000/d", "not between 1 and 65535. In a"),
        ("host=a,b port=1,2,3", "2 hosts and 3 ports"),
        ("postgresql://h/a\x00b", "a NUL"),
    ],
)
def test_a_misspelt_dsn_is_told_how_to_be_spelt(dsn: str, words: str) -> None:
    with pytest.raises(WrongDsn, match=words):
        read_dsn(dsn)


@pytest.mark.parametrize(
    "query", ["sslmode=bogus", "connect_timeout=abc", "target_session_attrs=x", "gssencmode=x"]
)
async def test_an_option_that_the_driver_refuses_is_the_dsns_fault(query: str) -> None:
    app = App(f"postgresql://127.0.0.1:1/d?{query}")
    with pytest.raises(WrongDsn, match=query.split("=")[1]):
        await app.jobs()


async def test_a_host_that_can_be_no_name_is_the_dsns_fault() -> None:
    app = App("postgresql://" + "a" * 300 + "/d")
    with pytest.raises(WrongDsn, match="host"):
        await app.jobs()


# -- decorators ------------------------------------------------------------------------------------
def test_a_task_made_of_a_task_is_told_in_which_order_decorators_stand() -> None:
    app = App("postgresql://")
    with pytest.raises(BadJob, match=r"@app.task is above.*right above the f"):

        @app.task
        @app.periodic("0 * * * *")
        def report() -> None: ...

    @app.periodic("0 * * * *", name="other")
    @app.task(queue="reports")
    def right() -> None: ...

    with pytest.raises(BadSchedule):
        app.periodic("61 * * * *")


def test_every_message_can_be_printed() -> None:
    for got in ("\ud800", "a\x00b", ["\ud800"]):
        clear(LeaseworkError("it failed", got=got, do="\ud800"))
