"""``manage.py leasework_worker …``: ``leasework worker`` with the App of the project."""

from leasework.integrations.django.management.passing import WorkerCommand as Command

__all__ = ["Command"]
