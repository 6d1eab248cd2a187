"""The one App of the project, made from the setting LEASEWORK."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

from django.conf import settings

from leasework.errors import ConfigError
from leasework.integrations.django.base import DjangoApp


def _made() -> DjangoApp:
    given = getattr(settings, "LEASEWORK", {})
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise ConfigError(
            "the setting LEASEWORK must be a dict", got=given, do='LEASEWORK = {"SCHEMA": "jobs"}'
        )
    if "APP" not in given:
        return DjangoApp(**{name.lower(): value for name, value in given.items()})
    if len(given) > 1:
        raise ConfigError(
            "the setting LEASEWORK has APP, so it can have nothing else",
            got=sorted(given),
            do="Give the other options to DjangoApp(…)",
        )
    return _named(given["APP"])


def _named(path: Any) -> DjangoApp:
    example = 'LEASEWORK = {"APP": "shop.jobs:app"}, where app = DjangoApp(…)'
    try:
        found = resolve_name(path)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        what = f"the App of the setting LEASEWORK cannot be imported: {error}"
        raise ConfigError(what, got=path, do=example) from error
    if not isinstance(found, DjangoApp):
        what = "the setting LEASEWORK names something that is not a DjangoApp"
        raise ConfigError(what, got=path, do=example)
    return found


app = _made()
