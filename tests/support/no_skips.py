"""With ``CI=true`` a test that is skipped, or expected to fail, is a failure.

A suite that may skip is green on the day the server it needs is gone. The report itself is
turned, so that the closing line of pytest counts it and the summary lists it.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

CANNOT = "this machine cannot: "
"""Begins the reason of the one skip that stays a skip: what a probe found the kernel, or the
account, not to allow. What only needs to be installed is not of this kind."""

Report = pytest.TestReport | pytest.CollectReport


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"true", "1"}


def refuse(report: Report) -> Report:
    expected_to_fail = hasattr(report, "wasxfail")
    if not (report.skipped or expected_to_fail):
        return report
    if expected_to_fail:
        reason = f"expected to fail: {report.wasxfail}"
        del report.wasxfail
    elif isinstance(report.longrepr, tuple):
        reason = str(report.longrepr[2])
        if reason.removeprefix("Skipped: ").startswith(CANNOT):
            return report  # listed all the same
    else:
        reason = str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid}: not allowed with CI=true: {reason}"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, Report, Report]:
    report = yield
    return refuse(report) if in_ci() else report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, Report, Report]:
    report = yield
    return refuse(report) if in_ci() else report
