"""The Store and the Reports: every operation on the database."""
