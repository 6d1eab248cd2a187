"""The App object, which users import, and which alone puts the parts together."""

from leasehold.app.core import App
from leasehold.app.definitions import Task
from leasehold.app.sync import SyncApp

__all__ = ["App", "SyncApp", "Task"]
