"""With ``CI=true``, turns a skipped test or an expected failure into a failure.

Otherwise the tests would pass even if the server that they need were missing. This changes the
report itself, so that pytest counts and lists the test as failed.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

CANNOT = "this machine cannot: "
"""The reason of a skip that remains a skip begins with this: a probe found that the kernel or the
account does not allow the test. A missing package is no such reason."""

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
            return report  # list it nevertheless
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
