"""A project's own App, in a module that imports models."""

from django.contrib.auth.models import User  # noqa: F401

from leasehold.integrations.django import DjangoApp

app = DjangoApp(recover_within=9)
