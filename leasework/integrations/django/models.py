"""The jobs and schedules for Django's queries: views, which are read-only."""

from __future__ import annotations

from typing import Any

from django.db import models

from leasework.integrations.django.project import app


def _of_view(name: str, **options: Any) -> type:
    """The options of a model that reads one of leasework's views."""
    table = f'"{app.settings.schema}"."{name}"'
    return type(
        "Meta", (), {"managed": False, "db_table": table, "default_permissions": (), **options}
    )


class Job(models.Model):  # type: ignore[misc]
    """A job as in the view ``leasework.jobs``: ``Job.objects.filter(state="running")``."""

    id = models.UUIDField(primary_key=True)
    task_name = models.TextField()
    queue = models.TextField()
    payload = models.JSONField()
    state = models.TextField()
    priority = models.SmallIntegerField()
    created_at = models.DateTimeField()
    scheduled_for = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    attempt = models.SmallIntegerField()
    max_attempts = models.SmallIntegerField()
    worker_id = models.TextField(null=True)
    last_error = models.TextField(null=True)
    reason = models.TextField(null=True)
    traceback = models.TextField(null=True)
    result = models.JSONField(null=True)

    Meta = _of_view("jobs", permissions=(("operate", "Can act in leasework's dashboard"),))

    def __str__(self) -> str:
        return f"{self.task_name} {self.id}"


class Schedule(models.Model):  # type: ignore[misc]
    """A schedule as in the view ``leasework.schedules``, for a schema with one application, in
    which the name identifies it: ``Schedule.objects.filter(name__startswith="report-")``."""

    name = models.TextField(primary_key=True)
    task_name = models.TextField()
    described = models.TextField()
    paused = models.BooleanField()
    next_at = models.DateTimeField(null=True)
    last_fire_at = models.DateTimeField(null=True)
    last_state = models.TextField(null=True)

    Meta = _of_view("schedules")

    def __str__(self) -> str:
        return str(self.name)
