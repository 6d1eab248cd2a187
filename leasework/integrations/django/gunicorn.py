"""Hooks for ``gunicorn.conf.py``: each web worker runs the schedules and jobs of the project.

``post_worker_init`` and ``worker_exit`` start and stop a node in a thread of the worker. Leave both
out to run the jobs in ``manage.py leasework_worker`` alone. ``pre_fork`` and ``child_exit`` certify
the death of a killed worker. Set ``DJANGO_SETTINGS_MODULE`` above the import of this module.
"""

from __future__ import annotations

import os
import subprocess
import sys

from leasework.config import Settings
from leasework.errors import ConfigError
from leasework.integrations.gunicorn import Certificates, node

_ASK = "from leasework.integrations.django import app; print(app.given.to_text())"


class _OfProject(Certificates):
    """The certificates, with the settings of the Django project."""

    def _load(self) -> Settings:
        """Ask a short-lived process. The arbiter must not load the project: the workers that it
        forks after a reload would have the old code."""
        path = os.pathsep.join(folder for folder in sys.path if folder)
        asked = subprocess.run(
            [sys.executable, "-c", _ASK],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        )
        if asked.returncode:
            raise ConfigError(
                "leasework's gunicorn hooks cannot load the Django project",
                got=os.environ.get("DJANGO_SETTINGS_MODULE", "no DJANGO_SETTINGS_MODULE"),
                do="Set DJANGO_SETTINGS_MODULE in gunicorn.conf.py. The error is above",
            )
        return Settings.from_text(asked.stdout.splitlines()[-1])


_certificates = _OfProject({})
pre_fork = _certificates.pre_fork
child_exit = _certificates.child_exit
post_worker_init, worker_exit = node("leasework.integrations.django:app")
