"""The App object, which users import, and which alone puts the parts together."""

from leasework.app.core import App
from leasework.app.definitions import Task
from leasework.app.sync import SyncApp

__all__ = ["App", "SyncApp", "Task"]
