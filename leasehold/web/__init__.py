"""The dashboard: an ASGI application to mount in another, or to run with ``leasehold web``.

    fastapi_app.mount("/leasehold", dashboard(app, login=Login(token=...)))

It needs the extra ``web``: starlette and jinja2 (and uvicorn for ``leasehold web``).
"""

from leasehold.errors import MissingExtra

try:
    import jinja2  # noqa: F401
    import starlette  # noqa: F401
except ImportError as error:
    raise MissingExtra(
        f"the dashboard needs the package {error.name}", do="pip install 'leasehold[web]'"
    ) from None

from leasehold.web.application import dashboard
from leasehold.web.login import Login
from leasehold.web.probes import probes

__all__ = ["Login", "dashboard", "probes"]
