# gunicorn calls these two: it knows first that a worker is dead, and says so to the database
from leasehold.integrations.gunicorn import child_exit, pre_fork  # noqa: F401

workers = 4
worker_class = "uvicorn_worker.UvicornWorker"
