"""``manage.py leasework`` and ``manage.py leasework_worker``."""
