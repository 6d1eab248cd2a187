"""leasework: run every scheduled task and background job once across all processes of an
application, on the PostgreSQL that it already has.

    from leasework import App, Context

    app = App()

    @app.task()
    async def send_email(ctx: Context, to: str) -> None: ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from leasework.version import VERSION

if TYPE_CHECKING:
    from leasework.exports import *  # noqa: F403

__version__ = VERSION


def __getattr__(name: str) -> Any:
    # loaded on first use, so that the command line starts without the driver
    if name == "__all__" or name[:1].isupper():  # a lower-case name is a module
        offered = vars(import_module("leasework.exports"))
        if name == "__all__":
            return sorted(each for each in offered if each[:1].isupper())
        if name in offered:
            return offered[name]
    raise AttributeError(f"module 'leasework' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__getattr__("__all__"), "__version__"]
