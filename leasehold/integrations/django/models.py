"""The jobs for Django's queries: the view ``leasehold.jobs``, which is read-only."""

from __future__ import annotations

from django.db import models

from leasehold.integrations.django.project import app


class Job(models.Model):  # type: ignore[misc]
    """A job as in the view ``leasehold.jobs``: ``Job.objects.filter(state="running")``."""

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
    result = models.JSONField(null=True)

    class Meta:
        managed = False
        db_table = f'"{app.settings.schema}"."jobs"'
        default_permissions = ()
        permissions = (("operate", "Can act in leasehold's dashboard"),)

    def __str__(self) -> str:
        return f"{self.task_name} {self.id}"
