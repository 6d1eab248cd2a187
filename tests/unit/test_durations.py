"""A length of time may be given as seconds or as a timedelta, wherever leasework takes one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from leasework import App, Backoff, Snooze
from leasework.config import Polling, Retention, Settings
from leasework.errors import BadJob, BadSchedule, ConfigError
from leasework.model.moments import checked_timeout
from leasework.model.schedule import every
from leasework.testing import context

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("option", ["timeout", "requeue_after", "run_in"])
def test_an_option_of_a_job_may_be_a_timedelta(option: str):
    task = App().task(name="t")(lambda: None)
    assert getattr(task.using(**{option: MINUTE}).job(), option) == 60.0
    assert getattr(task.using(**{option: 60}).job(), option) == 60


def test_the_time_of_a_unique_key_may_be_a_timedelta():
    task = App().task(name="t")(lambda: None)
    assert task.using(unique="k", unique_for=MINUTE).job().as_request(_ID, 100)["unique_for"] == 60


def test_an_option_of_a_task_may_be_a_timedelta():
    task = App().task(name="t", timeout=MINUTE)(lambda: None)
    assert task.job().timeout == 60.0


def test_a_timedelta_that_is_out_of_range_is_refused_in_seconds():
    task = App().task(name="t")(lambda: None)
    with pytest.raises(BadJob, match="run_in must be a number from 0") as refused:
        task.using(run_in=-MINUTE)
    assert refused.value.got == -60.0


def test_backoff_and_snooze_take_timedeltas():
    backoff = Backoff(base=MINUTE, longest=timedelta(hours=1), jitter=0)
    assert [backoff.seconds(n, 0.5) for n in (1, 2, 9)] == [60, 120, 3600]
    assert Snooze(MINUTE).seconds == 60
    with pytest.raises(BadJob):
        Snooze(-MINUTE)


def test_an_interval_and_its_grace_may_be_timedeltas():
    assert every(seconds=MINUTE) == every(seconds=60)
    app = App()
    app.every(seconds=MINUTE, grace_seconds=timedelta(seconds=2))(lambda: None)
    [planned] = app._planned.values()
    assert planned.grace_seconds == 2.0
    with pytest.raises(BadSchedule, match="from 1 to"):
        every(seconds=timedelta(0))


def test_a_setting_may_be_a_timedelta():
    assert Settings.load({"recover_within": MINUTE}, {}).recover_within == 60.0


def test_polling_and_retention_take_timedeltas():
    assert Polling(stage=MINUTE).stage == Retention(catch_up_seconds=MINUTE).catch_up_seconds == 60


def test_the_timeout_of_a_context_in_a_test_may_be_a_timedelta():
    assert context(timeout=MINUTE).claim.job.timeout == 60.0


@pytest.mark.parametrize(("given", "seconds"), [(MINUTE, 60.0), (2, 2), (0, 0), (None, None)])
def test_a_timeout_may_be_a_timedelta(given: Any, seconds: float | None):
    assert checked_timeout(given) == seconds
    App().lock("nightly", timeout=given)


@pytest.mark.parametrize("wrong", [-MINUTE, -1, "1", True, float("nan")])
def test_a_wrong_timeout_is_refused(wrong: Any):
    with pytest.raises(ConfigError, match="timeout must be"):
        checked_timeout(wrong)


_ID: Any = "00000000-0000-0000-0000-000000000000"
