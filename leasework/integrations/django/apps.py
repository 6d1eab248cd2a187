"""The Django app: finds the tasks of the project."""

from __future__ import annotations

from contextlib import suppress

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class LeaseworkConfig(AppConfig):  # type: ignore[misc]
    name = "leasework.integrations.django"
    label = "leasework"
    verbose_name = "leasework"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import the module ``tasks`` of each installed app. Raises ConfigError if the project's
        App cannot be made."""
        from leasework.integrations.django import project  # noqa: F401 - its settings are checked

        autodiscover_modules("tasks")
        with suppress(ModuleNotFoundError):  # Django has them since 6.0
            from django.tasks import task_backends

            task_backends.all()  # a worker must know the queues of each backend
