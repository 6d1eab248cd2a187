"""Frameworks and servers: Django, Flask, Litestar, gunicorn, WSGI, APScheduler.

Also claims on rows of the user's own tables. A module needs the framework that it is named after.
"""
