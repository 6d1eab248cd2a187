"""Runs the tests of task backends that are in Django's source on LeaseworkBackend."""
