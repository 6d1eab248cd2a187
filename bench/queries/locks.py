"""Locks leave no jobs."""
