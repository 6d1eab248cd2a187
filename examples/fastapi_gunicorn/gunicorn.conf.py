# gunicorn is the first to know that a worker is dead; these hooks record it in the database
from leasework.integrations.gunicorn import child_exit, pre_fork  # noqa: F401

workers = 4
worker_class = "uvicorn_worker.UvicornWorker"
