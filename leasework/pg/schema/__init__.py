"""The schema: its migrations, its roles, and the doctor's examination of the database."""
