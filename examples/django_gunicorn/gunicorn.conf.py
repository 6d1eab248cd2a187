import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")

# each worker runs schedules and jobs
from leasework.integrations.django.gunicorn import post_worker_init, worker_exit  # noqa: F401

workers = 4
