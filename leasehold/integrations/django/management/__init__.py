"""``manage.py leasehold`` and ``manage.py leasehold_worker``."""
