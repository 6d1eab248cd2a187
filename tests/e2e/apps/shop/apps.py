"""What many projects have: an app whose ``ready`` needs the tasks."""

from django.apps import AppConfig


class Shop(AppConfig):
    name = "tests.e2e.apps.shop"

    def ready(self):
        from tests.e2e.apps.shop.tasks import count_in_process  # noqa: F401
