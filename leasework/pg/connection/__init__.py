"""Connections: opens, checks, awaits, times, shares and closes them."""
