"""The schema: its migrations and its roles."""
