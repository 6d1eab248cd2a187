"""leasework in a Django project: put ``"leasework.integrations.django"`` into INSTALLED_APPS.

``app`` is the App of the project. Its options are in the setting LEASEWORK, and its database is
``DATABASES["default"]``. Tasks are found in the module ``tasks`` of each installed app.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leasework.integrations.django.base import DjangoApp

    app: DjangoApp
    """The App of the project. Raises ConfigError for a wrong setting LEASEWORK."""

__all__ = ["DjangoApp", "app"]

_WHERE = {"app": "project", "DjangoApp": "base"}


def __getattr__(name: str) -> Any:
    # loaded on first use: Django imports this package before it is set up
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "app":
        # `leasework worker` and the children of executor="process" start without a set-up of
        # Django, and the module of the project's own App may import models
        import django
        from django.apps import apps

        if not apps.ready and not apps.loading:
            django.setup()
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
