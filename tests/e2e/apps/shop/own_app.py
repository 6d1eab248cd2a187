"""A project's own App, in a module that imports models."""

from django.contrib.auth.models import User  # noqa: F401

from leasework.integrations.django import DjangoApp


class Backwards:
    encode = decode = staticmethod(lambda data: data[::-1])


app = DjangoApp(recover_within=9, codec=Backwards())
