"""leasework's tables, views and functions, in the database of the project's App. To remove them,
drop the schema: no migration deletes the jobs."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.db.migrations.state import ModelState

from leasework.integrations.django.models import Job, Schedule
from leasework.integrations.django.project import app
from leasework.pg.schema import migrate


def apply(apps: Any, editor: Any) -> None:
    if editor.connection.alias == app.database:
        with editor.connection.cursor() as cursor:
            migrate.apply_on(cursor, app.settings.schema)


def created(model: type[models.Model]) -> migrations.CreateModel:
    """Create the model as it is now. No later migration changes it, because it reads a view."""
    state = ModelState.from_model(model)
    return migrations.CreateModel(state.name, list(state.fields.items()), state.options)


class Initial(migrations.Migration):  # type: ignore[misc]
    initial = True
    operations = (migrations.RunPython(apply), created(Job), created(Schedule))


Migration = Initial  # Django looks for this name
