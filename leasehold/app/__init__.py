"""The user's object, and the only composition root."""

from leasehold.app.core import App
from leasehold.app.definitions import Task
from leasehold.app.sync import SyncApp

__all__ = ["App", "SyncApp", "Task"]
