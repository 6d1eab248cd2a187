"""``manage.py leasehold_worker …``: ``leasehold worker`` with the App of the project."""

from leasehold.integrations.django.management.passing import LeaseholdCommand


class Command(LeaseholdCommand):
    help = "Runs the schedules and jobs of the project."
    verb = ("worker", "leasehold.integrations.django:app")
