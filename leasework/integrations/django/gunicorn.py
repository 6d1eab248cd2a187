"""Hooks for ``gunicorn.conf.py``: each web worker runs the schedules and jobs of the project.

``post_worker_init`` and ``worker_exit`` start and stop a node in a thread of the worker. Leave both
out to run the jobs in ``manage.py leasework_worker`` alone. Set ``DJANGO_SETTINGS_MODULE`` above
the import of this module.
"""

from __future__ import annotations

from leasework.integrations.gunicorn import node

post_worker_init, worker_exit = node("leasework.integrations.django:app")
