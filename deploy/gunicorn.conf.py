from leasework.integrations.gunicorn import child_exit, pre_fork  # noqa: F401
