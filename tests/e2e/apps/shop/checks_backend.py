"""Run by Django's own test runner, where Django has django.tasks.

They ask of LeaseworkBackend what Django's tests (tests/tasks in its source) ask of a backend.
"""

import asyncio
import dataclasses
import pickle
from datetime import datetime, timedelta

from django.core import checks
from django.db import connection, transaction
from django.tasks import TaskResultStatus, default_task_backend, task, task_backends
from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.test import SimpleTestCase, TestCase, TransactionTestCase, override_settings
from django.utils import timezone

from leasework.errors import ConfigError
from leasework.integrations.django import app
from leasework.integrations.django.backend import LeaseworkBackend
from leasework.integrations.django.models import Job
from leasework.testing import drain
from tests.e2e.apps.shop import django_tasks as tasks

BACKEND = "leasework.integrations.django.backend.LeaseworkBackend"
SYNC_AND_ASYNC = (tasks.add, tasks.add_async)


class Definitions(SimpleTestCase):
    def test_the_backend_says_what_it_can(self):
        backend = task_backends["default"]
        self.assertIsInstance(backend, LeaseworkBackend)
        self.assertEqual(default_task_backend, backend)
        self.assertTrue(backend.supports_defer and backend.supports_async_task)
        self.assertTrue(backend.supports_get_result and backend.supports_priority)

    def test_a_task_is_known_to_workers_as_soon_as_it_is_defined(self):
        names = [task.name for task in app.registry]
        for one in (*SYNC_AND_ASYNC, tasks.mail, tasks.who_am_i):
            self.assertIn(one.module_path, names)
        self.assertLessEqual({"default", "mail", "bulk"}, app.registry.queues())

    def test_its_options_are_those_of_the_settings(self):
        self.assertEqual(app.registry.get(tasks.add.module_path).options.max_attempts, 2)
        wrong = {"default": {"BACKEND": BACKEND, "OPTIONS": {"retries": 1}}}
        refused = self.assertRaisesMessage(ConfigError, "TASKS['default'] has no option 'retries'")
        with override_settings(TASKS=wrong), refused:
            tasks.add.using()

    def test_what_does_not_fit_is_refused(self):
        for priority in (-101, 101, 3.1):
            with self.assertRaisesMessage(InvalidTask, "priority must be a whole number"):
                tasks.add.using(priority=priority)
        with self.assertRaisesMessage(InvalidTask, "must be an aware datetime"):
            tasks.add.using(run_after=datetime.now())
        with self.assertRaisesMessage(InvalidTask, "Queue 'nowhere' is not valid"):
            tasks.add.using(queue_name="nowhere")
        self.assertEqual(tasks.add.using(queue_name="nowhere", backend="free").backend, "free")
        for function in (any, self.test_what_does_not_fit_is_refused):
            with self.assertRaisesMessage(InvalidTask, "must be defined at a module level"):
                task(function)
        with self.assertRaisesMessage(InvalidTask, "does not have a first argument of 'context'"):
            task(takes_context=True)(tasks.add.func)

    def test_a_queue_is_checked_again_when_a_job_is_enqueued(self):
        given = tasks.add.using(queue_name="mail")
        with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": ["other"]}}):
            with self.assertRaisesMessage(InvalidTask, "Queue 'mail' is not valid"):
                given.enqueue(1)

            async def enqueue():
                await given.aenqueue(1)

            with self.assertRaisesMessage(InvalidTask, "Queue 'mail' is not valid"):
                asyncio.run(enqueue())

    def test_a_task_can_be_called_and_pickled(self):
        self.assertEqual([one.call(1, right=2) for one in SYNC_AND_ASYNC], [3, 3])
        self.assertEqual(pickle.loads(pickle.dumps(tasks.add)), tasks.add)

    def test_the_system_check_asks_for_the_django_app(self):
        self.assertEqual(checks.run_checks(), [])
        without = ["django.contrib.auth", "django.contrib.contenttypes"]
        with override_settings(INSTALLED_APPS=without):
            [found] = task_backends["default"].check()
        self.assertEqual(found.id, "leasework.E001")


class Enqueues(TestCase):
    def test_the_result_says_what_was_enqueued(self):
        for one in SYNC_AND_ASYNC:
            before = timezone.now() - timedelta(minutes=1)
            result = one.enqueue(1, right=2)
            self.assertEqual((result.task, result.status), (one, TaskResultStatus.READY))
            self.assertEqual((result.args, result.kwargs), ([1], {"right": 2}))
            self.assertGreater(result.enqueued_at, before)
            self.assertFalse(result.is_finished)
            self.assertIsNone(result.started_at or result.finished_at or result.last_attempted_at)
            self.assertEqual((result.attempts, result.errors, result.worker_ids), (0, [], []))
            with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
                self.fail(result.return_value)
            self.assertEqual(pickle.loads(pickle.dumps(result)), result)

    async def test_it_is_enqueued_from_async_code(self):
        result = await tasks.add.aenqueue(1)
        self.assertEqual(await tasks.add.aget_result(result.id), result)
        before = dataclasses.asdict(result)
        await result.arefresh()
        self.assertEqual(dataclasses.asdict(result), before)

    def test_a_result_is_found_by_its_id_and_only_for_its_task(self):
        result = tasks.add.enqueue(1)
        self.assertEqual(tasks.add.get_result(result.id), result)
        result.refresh()
        self.assertEqual(tasks.add.get_result(result.id), result)
        with self.assertRaises(TaskResultMismatch):
            tasks.add_async.get_result(result.id)
        other = app.sync.enqueue(app.task(name="not.django's")(lambda: None).job())
        for missing in ("123", "a" * 32, str(other.id)):
            with self.assertRaises(TaskResultDoesNotExist):
                tasks.add.get_result(missing)

    def test_arguments_that_are_not_json_are_refused(self):
        with self.assertRaisesMessage(TypeError, "Unsupported type"):
            tasks.add.enqueue(datetime.now())
        self.assertFalse(Job.objects.exists())

    def test_a_job_gets_the_tasks_priority_queue_and_time(self):
        later = timezone.now() + timedelta(hours=1)
        result = tasks.mail.using(run_after=later).enqueue()
        job = Job.objects.get(id=result.id)
        self.assertEqual((job.priority, job.queue, job.state), (-10, "mail", "scheduled"))
        self.assertEqual(job.scheduled_for, later)
        self.assertEqual(result.task, tasks.mail.using(run_after=later))
        low, high = (
            tasks.add.using(priority=-100).enqueue(1),
            tasks.add.using(priority=100).enqueue(2),
        )
        self.assertEqual(Job.objects.order_by("priority").first().id.hex, high.id.replace("-", ""))
        self.assertEqual(Job.objects.order_by("priority").last().id.hex, low.id.replace("-", ""))

    def test_a_job_gets_the_options_of_the_backend_that_enqueues_it(self):
        result = tasks.add.using(backend="free").enqueue(1)
        self.assertEqual(Job.objects.get(id=result.id).max_attempts, 7)

    @override_settings(USE_TZ=False)
    def test_a_time_without_a_zone_is_in_the_projects_zone(self):
        later = datetime(2040, 5, 6, 7, 8)
        result = tasks.add.using(run_after=later).enqueue(1)
        self.assertEqual(result.task.run_after, later)

    def test_a_rolled_back_block_takes_the_job_with_it(self):
        with self.assertRaises(LookupError), transaction.atomic():
            result = tasks.add.enqueue(1)
            self.assertEqual(tasks.add.get_result(result.id), result)
            raise LookupError
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.add.get_result(result.id)

    def test_the_signal_and_the_log_name_the_job(self):
        heard = []

        def hear(sender, task_result, **kwargs):
            heard.append((sender, task_result.id))

        task_enqueued.connect(hear)
        with self.assertLogs("django.tasks", level="DEBUG") as logs:
            result = tasks.add.enqueue(1)
        self.assertEqual(heard, [(LeaseworkBackend, result.id)])
        self.assertIn(result.id, logs.output[0])


def imported_late():
    """A task of a module that is imported while a node runs."""


class Runs(TransactionTestCase):
    def tearDown(self):
        with connection.cursor() as cursor:
            cursor.execute("delete from leasework.job")
        app.sync.close()

    def run_all(self):
        async def run():
            try:
                return await drain(app)
            finally:
                await app.close()

        return asyncio.run(run())

    def retry_at_once(self):
        """What a failed job waits for before its second attempt."""
        for job in Job.objects.filter(state="retryable"):
            app.sync.retry(job.id)
        return self.run_all()

    def test_it_returns_what_the_task_returned(self):
        results = [one.enqueue(1, right=2) for one in SYNC_AND_ASYNC]
        with self.assertLogs("django.tasks", level="INFO") as logs:
            self.run_all()
        for result in results:
            result.refresh()
            self.assertEqual((result.status, result.return_value), ("SUCCESSFUL", 3))
            self.assertTrue(result.is_finished)
            self.assertLessEqual(result.enqueued_at, result.started_at)
            self.assertEqual(result.started_at, result.last_attempted_at)
            self.assertLessEqual(result.started_at, result.finished_at)
            self.assertEqual((result.attempts, result.errors), (1, []))
            mine = [line for line in logs.output if result.id in line]
            self.assertEqual(len(mine), 2, mine)
            self.assertIn("state=RUNNING", mine[0])
            self.assertIn("state=SUCCESSFUL", mine[1])

    def test_a_receiver_that_fails_does_not_run_a_finished_task_again(self):
        def fails(sender, task_result, **kwargs):
            raise LookupError("the metrics are away")

        task_finished.connect(fails)
        self.addCleanup(task_finished.disconnect, fails)
        results = [one.enqueue(1) for one in SYNC_AND_ASYNC]
        with self.assertLogs("django.dispatch", level="ERROR"):
            self.run_all()
        for result in results:
            result.refresh()
            self.assertEqual((result.status, result.attempts), ("SUCCESSFUL", 1))

    def test_the_context_has_the_running_result(self):
        results = [tasks.who_am_i.enqueue(), tasks.who_am_i_async.enqueue()]
        self.run_all()
        for result in results:
            result.refresh()
            self.assertEqual(result.return_value, [result.id, 1, "RUNNING"])

    def test_a_failed_task_is_ready_again_and_failed_after_its_last_attempt(self):
        kinds = {
            "builtin": ValueError,
            "own": tasks.Broken,
            "exit": SystemExit,
        }
        results = {kind: tasks.fail.enqueue(kind) for kind in kinds}
        results["async"] = tasks.fail_async.enqueue()
        finished, started = [], []

        def end(sender, task_result, **kwargs):
            finished.append((task_result.id, task_result.status))

        def begin(sender, task_result, **kwargs):
            started.append(task_result.id)

        task_finished.connect(end)
        task_started.connect(begin)
        self.run_all()
        for result in results.values():
            result.refresh()
            self.assertEqual((result.status, result.attempts), ("READY", 1))
            self.assertEqual(len(result.errors), 1)
        self.assertEqual((finished, len(started)), ([], 4))
        with self.assertLogs("django.tasks", level="ERROR") as logs:
            self.retry_at_once()
        self.assertEqual(len(logs.output), 4)
        self.assertEqual(len(started), 8)
        self.assertCountEqual(finished, [(result.id, "FAILED") for result in results.values()])
        for kind, result in results.items():
            result.refresh()
            self.assertEqual((result.status, result.attempts), ("FAILED", 2))
            with self.assertRaisesMessage(ValueError, "Task failed"):
                self.fail(result.return_value)
            [error] = result.errors
            self.assertIs(error.exception_class, kinds.get(kind, KeyError))
            self.assertIn("it failed", error.traceback)
            self.assertIn("django_tasks.py", error.traceback)

    def test_a_task_that_is_defined_while_a_node_runs_is_refused(self):
        async def define(**options):
            try:
                async with app.node(**options):
                    return task(imported_late)
            finally:
                await app.close()

        path = f"{__name__}.imported_late"
        with self.assertRaisesRegex(ConfigError, f"the task '{path}' is defined too late"):
            asyncio.run(define())
        self.assertIsNone(app.registry.find(path))
        self.assertEqual(asyncio.run(define(execute=False)).module_path, path)
        app.registry._tasks.pop(path)

    def test_a_result_that_is_not_json_fails_the_task_without_another_run(self):
        kinds = {True: TypeError, False: ValueError}
        results = {kind: tasks.unstorable.enqueue(kind) for kind in kinds}
        with self.assertLogs("django.tasks", level="ERROR"):
            self.run_all()
        for kind, result in results.items():
            result.refresh()
            self.assertEqual((result.status, result.attempts), ("FAILED", 1))
            self.assertIs(result.errors[0].exception_class, kinds[kind])
            self.assertIn("Unsupported", result.errors[0].traceback)

    def test_no_worker_ends_a_job_before_its_result_is_read(self):
        class WithAWorker(LeaseworkBackend):
            def get_result(self, result_id):
                app.sync.call(drain(app))  # another connection: it sees only what is committed
                return super().get_result(result_id)

        backend = WithAWorker("default", {"OPTIONS": {"history": False}})
        result = backend.enqueue(tasks.nothing, [], {})
        self.assertEqual(result.status, "READY")
        self.run_all()
        self.assertFalse(Job.objects.filter(id=result.id).exists())

    def test_a_cancelled_job_is_a_failed_task(self):
        result = tasks.nothing.enqueue()
        app.sync.cancel(result.id)
        result.refresh()
        self.assertEqual(result.status, "FAILED")
