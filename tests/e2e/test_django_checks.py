"""The tests of a Django project under Django's own test runner, on every Python: only newer ones
have a Django with ``django.tasks``."""

from __future__ import annotations

import re

from tests.e2e.conftest import HAS_TASKS, SHOP, Django, succeeded


def test_the_project_passes_its_own_tests(django: Django) -> None:
    """On every Python: the app, its transactions, the dashboard and the test database."""
    output = succeeded(django("test", f"{SHOP}.checks"), 90)
    assert re.search(r"Ran 3\d tests", output), output


def test_the_task_backend_does_what_django_asks_of_one_or_says_what_it_needs(
    django: Django,
) -> None:
    if HAS_TASKS:
        output = succeeded(django("test", f"{SHOP}.checks_backend"), 90)
        assert re.search(r"Ran 2\d tests", output), output
        one = f"{SHOP}.checks_backend.Runs.test_it_returns_what_the_task_returned"
        with_codec = {"SHOP_LEASEWORK": f'{{"APP": "{SHOP}.own_app:app"}}'}
        assert "Ran 1 test" in succeeded(django("test", one, **with_codec), 90)
        queues = "from leasework.integrations.django import app; print(app.registry.queues())"
        assert "'later'" in succeeded(django("shell", "-c", queues))
    else:
        wanted = "import leasework.integrations.django.backend"
        process = django("shell", "-c", wanted)
        assert process.wait(30) != 0
        assert "LeaseworkBackend needs Django 6.0, which has django.tasks" in process.output
