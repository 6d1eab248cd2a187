"""The backend for Django's task framework (Django 6.0 and later).

    TASKS = {"default": {"BACKEND": "leasework.integrations.django.backend.LeaseworkBackend"}}

Its tasks are tasks of leasework, named by their path, such as ``shop.tasks.send_receipt``.
"""

from __future__ import annotations

import builtins
import inspect
import re
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from uuid import UUID

from django.apps import apps
from django.core import checks
from django.db import transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from leasework.errors import ConfigError, JobNotFound, suggest
from leasework.integrations.django.project import app
from leasework.jobs.context import Context, SyncContext
from leasework.jobs.tasks import TaskFunction, TaskOptions
from leasework.model.codec import opened
from leasework.model.outcome import Discard
from leasework.model.states import State

try:
    from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ImportError as error:
    raise ConfigError(
        "LeaseworkBackend needs Django 6.0, which has django.tasks",
        do="Upgrade Django, or write @app.task with the app of leasework.integrations.django",
    ) from error

_OPTIONS = ("backoff", "history", "max_attempts", "requeue_after", "tags", "timeout")
_STATUS = {
    State.COMPLETED: TaskResultStatus.SUCCESSFUL,
    State.CANCELLED: TaskResultStatus.FAILED,
    State.DISCARDED: TaskResultStatus.FAILED,
    State.QUARANTINED: TaskResultStatus.FAILED,
    State.RUNNING: TaskResultStatus.RUNNING,
}
"""Of a job's state. All others are READY, also between two attempts."""


class LeaseworkBackend(BaseTaskBackend):  # type: ignore[misc]
    """Runs Django's tasks as jobs of leasework, in ``manage.py leasework_worker`` or in the web
    workers. ``enqueue`` is part of the current transaction.

    ``OPTIONS``: ``max_attempts``, ``backoff``, ``timeout``, ``requeue_after``, ``history`` and
    ``tags``, as for ``@app.task``. Raises ConfigError for other options.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        for wrong in self.options.keys() - set(_OPTIONS):
            raise ConfigError(
                f"TASKS[{alias!r}] has no option {wrong!r}", do=suggest(wrong, _OPTIONS)
            )
        app.registry.more_queues |= self.queues

    def validate_task(self, task: Task) -> None:
        """Also makes the task known to the workers of this process."""
        super().validate_task(task)
        self._known(task)

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        self.validate_task(task)
        payload = {"args": normalize_json(list(args)), "kwargs": normalize_json(kwargs)}
        own = {name: value for name, value in self.options.items() if name != "backoff"}
        options = {**own, "queue": task.queue_name, "priority": -task.priority}
        if task.run_after is not None:
            naive = timezone.is_naive(task.run_after)
            options["run_at"] = timezone.make_aware(task.run_after) if naive else task.run_after
        known = self._known(task)
        request = known.job((), payload, known.with_options(known.job_options, options))
        # in one transaction: before its end, no worker can run and forget the job
        with transaction.atomic(using=app.database) if app.database else nullcontext():
            result = self.get_result(app.sync.enqueue(request).id)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: Any) -> TaskResult:
        """Of earlier failed attempts, only the last error is known, and no worker."""
        job = _job(result_id)
        task = _task(job.task_name) if job else None
        if job is None or task is None:
            raise TaskResultDoesNotExist(result_id)
        payload = opened(app.codec, job.payload)
        waits = job.state == State.SCHEDULED and not job.attempt
        task = task.using(priority=-job.priority, queue_name=job.queue, backend=self.alias,
                          run_after=job.scheduled_for if waits else None)  # fmt: skip
        result = TaskResult(
            task=task,
            id=str(job.id),
            status=_STATUS.get(State(job.state), TaskResultStatus.READY),
            enqueued_at=job.created_at,
            started_at=job.started_at,
            finished_at=job.completed_at,
            last_attempted_at=job.started_at,
            args=payload["args"],
            kwargs=payload["kwargs"],
            backend=self.alias,
            errors=[_error(job.last_error, job.traceback)] if job.last_error else [],
            worker_ids=[""] * (job.attempt - 1) + [job.worker_id or ""] * bool(job.attempt),
        )
        object.__setattr__(result, "_return_value", opened(app.codec, job.result))
        return result

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """Django's system check: the backend needs the Django app."""
        name = "leasework.integrations.django"
        if apps.is_installed(name):
            return []
        return [
            checks.Error(f"LeaseworkBackend needs {name!r} in INSTALLED_APPS", id="leasework.E001")
        ]

    def _known(self, task: Task) -> TaskFunction:
        """The task of leasework that runs this one."""
        found = app.registry.find(task.module_path)
        if found is None:
            # for a task of which a job has come already, this process claims no jobs any more
            app.check_in_time(f"the task {task.module_path!r}", for_jobs=True)
            options = TaskOptions(queue=task.queue_name, priority=-task.priority, **self.options)
            found = app.registry.add(task.module_path, _handler(self, task), options)
        return found


def _job(job_id: Any) -> Any:
    """The job, as a model or a JobRecord, or None. In Django's database, the current transaction
    sees what it has enqueued."""
    try:
        key = UUID(str(job_id))
        if not app.database:
            return app.sync.get(key)
    except (ValueError, JobNotFound):
        return None
    from leasework.integrations.django.models import Job

    return Job.objects.using(app.database).filter(pk=key).first()


def _task(path: str) -> Task | None:
    try:
        found = import_string(path)
    except ImportError:
        return None
    return found if isinstance(found, Task) else None


def _error(text: str, traceback: str | None = None) -> TaskError:
    """The last line of a traceback has the full name of the error's class."""
    name = text.partition(":")[0]
    path = re.findall(rf"^((?:\w+\.)*{re.escape(name)})(?::|$)", traceback or text, re.M)[-1:]
    if path == [name] and hasattr(builtins, name):
        path = [f"builtins.{name}"]
    if not path or "." not in path[0]:  # not the error of a handler, such as a timeout
        path = ["leasework.errors.JobFailed"]
    return TaskError(exception_class_path=path[0], traceback=traceback or text)


def _handler(backend: LeaseworkBackend, task: Task) -> Callable[..., Any]:
    """The handler that runs a task, with Django's signals. Django logs an error of a receiver of
    ``task_finished``, which must not run finished work again."""
    sender = type(backend)

    async def run_async(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
        result = await backend.aget_result(ctx.job_id)
        await task_started.asend(sender, task_result=result)
        try:
            returned = await task.func(*_context(task, result), *args, **kwargs)
        except BaseException as error:
            if _failed(result, ctx, error):
                await task_finished.asend_robust(sender, task_result=result)
            raise
        outcome = _returned(result, returned)
        await task_finished.asend_robust(sender, task_result=result)
        return outcome

    def run(ctx: SyncContext, args: list[Any], kwargs: dict[str, Any]) -> Any:
        result = backend.get_result(ctx.job_id)
        task_started.send(sender, task_result=result)
        try:
            returned = task.func(*_context(task, result), *args, **kwargs)
        except BaseException as error:
            if _failed(result, ctx, error):
                task_finished.send_robust(sender, task_result=result)
            raise
        outcome = _returned(result, returned)
        task_finished.send_robust(sender, task_result=result)
        return outcome

    return run_async if inspect.iscoroutinefunction(task.func) else run


def _context(task: Task, result: TaskResult) -> list[TaskContext]:
    return [TaskContext(task_result=result)] if task.takes_context else []


def _failed(result: TaskResult, ctx: Context, error: BaseException) -> bool:
    """Whether this was the last attempt."""
    if ctx.attempt < ctx.max_attempts or ctx.cancelled:
        return False
    path = f"{type(error).__module__}.{type(error).__qualname__}"
    text = "".join(traceback.format_exception(error))
    result.errors[:] = [TaskError(exception_class_path=path, traceback=text)]
    _end(result, TaskResultStatus.FAILED)
    return True


def _returned(result: TaskResult, returned: Any) -> Any:
    """What the handler returns to leasework: the value, or Discard if it is not JSON."""
    try:
        value = normalize_json(returned)
    except (TypeError, ValueError) as error:
        text = f"{type(error).__name__}: the result is not JSON: {error}"
        result.errors[:] = [_error(text)]
        _end(result, TaskResultStatus.FAILED)
        return Discard(text)
    object.__setattr__(result, "_return_value", value)
    _end(result, TaskResultStatus.SUCCESSFUL)
    return value


def _end(result: TaskResult, status: TaskResultStatus) -> None:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())
