"""``manage.py leasehold …``: the command ``leasehold`` on the database of the project."""

from leasehold.integrations.django.management.passing import LeaseholdCommand


class Command(LeaseholdCommand):
    help = "Shows and manages jobs, schedules and workers. Without arguments: what there is."
