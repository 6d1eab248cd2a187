"""Fixtures for every test. Servers are real; what starts a process also ends it."""

from __future__ import annotations

pytest_plugins = ["tests.support.no_skips"]
