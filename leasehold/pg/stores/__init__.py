"""The Store and the reports on PostgreSQL."""
