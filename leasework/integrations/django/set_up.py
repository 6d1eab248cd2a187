"""Sets Django up, for the children of executor="process", which import this module before a module
of tasks. Otherwise that module's import would begin the set-up, and an app's ``ready()`` that needs
the module would find half of it. After a set-up that failed, each further one raises an error."""

from __future__ import annotations

import django
from django.apps import apps

if not apps.ready:
    django.setup()
