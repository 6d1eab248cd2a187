"""``manage.py leasehold_worker …``: ``leasehold worker`` with the App of the project."""

from leasehold.integrations.django.management.passing import WorkerCommand as Command

__all__ = ["Command"]
