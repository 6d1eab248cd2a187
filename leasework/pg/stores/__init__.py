"""The Store and the Reports on PostgreSQL."""
