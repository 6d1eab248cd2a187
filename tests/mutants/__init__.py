"""Broken builds: each takes one protection out of the processes of a campaign.

They are here and not in the package: ``launch.py`` starts a process of the campaign with one of
them, by replacing text of statements or methods before the application is loaded.
"""
