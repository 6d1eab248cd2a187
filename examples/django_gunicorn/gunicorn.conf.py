import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")

# each worker runs schedules and jobs, and the arbiter records the death of a killed worker
from leasework.integrations.django.gunicorn import (  # noqa: F401
    child_exit,
    post_worker_init,
    pre_fork,
    worker_exit,
)

workers = 4
