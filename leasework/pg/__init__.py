"""PostgreSQL: connections, stores, the schema, users' connections, and all SQL."""
