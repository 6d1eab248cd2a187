"""Django's own tests of task backends, on LeaseworkBackend. Run by tests.django_own.

``tasks`` is the package tests/tasks of Django's source.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from django.db import connection
from django.test import TestCase, TransactionTestCase, override_settings
from tasks import test_immediate_backend, test_tasks

from leasework.integrations.django import app
from leasework.integrations.django.backend import LeaseworkBackend
from leasework.testing import drain


class Remembers(LeaseworkBackend):
    """With what Django's tests use of its DummyBackend."""

    def __init__(self, alias, params):
        super().__init__(alias, params)
        self.results = []

    def enqueue(self, task, args, kwargs):
        result = super().enqueue(task, args, kwargs)
        self.results.append(result)
        return result

    def clear(self):
        self.results.clear()


class RunsAtOnce(LeaseworkBackend):
    """Runs the job before ``enqueue`` returns, as Django's ImmediateBackend does."""

    def enqueue(self, task, args, kwargs):
        result = super().enqueue(task, args, kwargs)
        with ThreadPoolExecutor(1) as worker:  # no part of the calling code's event loop
            worker.submit(lambda: asyncio.run(run_all())).result()
        return self.get_result(result.id)


async def run_all():
    try:
        await drain(app)
    finally:
        await app.close()


@override_settings(
    TASKS={
        "default": {"BACKEND": f"{__name__}.Remembers", "QUEUES": ["default", "queue_1"]},
        "immediate": {
            "BACKEND": "django.tasks.backends.immediate.ImmediateBackend",
            "QUEUES": [],
        },
        "missing": {"BACKEND": "does.not.exist"},
    }
)
class Tasks(test_tasks.TaskTestCase, TestCase):
    databases = ("default",)

    # they ask whether the backend is Django's DummyBackend
    test_using_correct_backend = test_get_backend = None
    # in async code it calls refresh(), which Django refuses where that asks the database
    test_refresh_result = None


@override_settings(TASKS={"default": {"BACKEND": f"{__name__}.RunsAtOnce", "QUEUES": []}})
class Runs(test_immediate_backend.ImmediateBackendTestCase, TransactionTestCase):
    databases = ("default",)

    # it asks whether the backend is Django's ImmediateBackend
    test_using_correct_backend = None
    # what the ImmediateBackend cannot do, and this one can
    test_cannot_get_result = test_cannot_refresh_result = test_cannot_pass_run_after = None
    # a handler's KeyboardInterrupt does not interrupt whoever enqueues
    test_throws_keyboard_interrupt = None

    def tearDown(self):
        with connection.cursor() as cursor:
            cursor.execute("delete from leasework.job")
