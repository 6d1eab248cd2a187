"""The dashboard: an ASGI application to mount in another, or to run with ``leasework web``.

    fastapi_app.mount("/leasework", dashboard(app, login=Login(token=...)))

It needs the extra ``web``: starlette and jinja2 (and uvicorn for ``leasework web``).
"""

from leasework.errors import MissingExtra

try:
    import jinja2  # noqa: F401
    import starlette  # noqa: F401
except ImportError as error:
    raise MissingExtra(
        f"the dashboard needs the package {error.name}", do="install leasework's extra 'web'"
    ) from None

from leasework.web.application import dashboard
from leasework.web.login import Login
from leasework.web.probes import probes
from leasework.web.rights import Role

__all__ = ["Login", "Role", "dashboard", "probes"]
