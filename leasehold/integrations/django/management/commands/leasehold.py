"""``manage.py leasehold …``: the command ``leasehold`` on the database of the project."""

from leasehold.integrations.django.management.passing import LeaseholdCommand as Command

__all__ = ["Command"]
