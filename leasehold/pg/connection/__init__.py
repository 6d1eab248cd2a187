"""Connections: how one is opened, checked, awaited, timed, shared and closed."""
