"""A Django project for tests. The database is that of libpq's environment variables."""
