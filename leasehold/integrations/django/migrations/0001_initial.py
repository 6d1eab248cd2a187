"""leasehold's tables, views and functions, in the database of the project's App.

To remove them, drop the schema: no migration deletes the jobs.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from leasehold.integrations.django.project import app
from leasehold.pg.schema import migrate


def apply(apps: Any, editor: Any) -> None:
    if editor.connection.alias == app.database:
        with editor.connection.cursor() as cursor:
            migrate.apply_on(cursor, app.settings.schema)


class Initial(migrations.Migration):  # type: ignore[misc]
    initial = True
    operations = (
        migrations.RunPython(apply),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("task_name", models.TextField()),
                ("queue", models.TextField()),
                ("payload", models.JSONField()),
                ("state", models.TextField()),
                ("priority", models.SmallIntegerField()),
                ("created_at", models.DateTimeField()),
                ("scheduled_for", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("completed_at", models.DateTimeField(null=True)),
                ("attempt", models.SmallIntegerField()),
                ("max_attempts", models.SmallIntegerField()),
                ("worker_id", models.TextField(null=True)),
                ("last_error", models.TextField(null=True)),
                ("result", models.JSONField(null=True)),
            ],
            options={
                "db_table": f'"{app.settings.schema}"."jobs"',
                "managed": False,
                "default_permissions": (),
                "permissions": (("operate", "Can act in leasehold's dashboard"),),
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("task_name", models.TextField()),
                ("described", models.TextField()),
                ("paused", models.BooleanField()),
                ("next_at", models.DateTimeField(null=True)),
                ("last_fire_at", models.DateTimeField(null=True)),
                ("last_state", models.TextField(null=True)),
            ],
            options={
                "db_table": f'"{app.settings.schema}"."schedules"',
                "managed": False,
                "default_permissions": (),
            },
        ),
    )


Migration = Initial  # Django looks for this name
