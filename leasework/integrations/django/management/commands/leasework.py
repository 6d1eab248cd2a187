"""``manage.py leasework …``: the command ``leasework`` on the database of the project."""

from leasework.integrations.django.management.passing import LeaseworkCommand as Command

__all__ = ["Command"]
