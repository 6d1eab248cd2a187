"""The dashboard behind the project's own login."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.views.decorators.csrf import csrf_exempt

from leasework.integrations.django.project import app
from leasework.integrations.wsgi import Wsgi, as_wsgi
from leasework.web import dashboard
from leasework.web.gate import OPEN

MAY_ACT = "leasework.operate"
"""The permission to act. Without it the dashboard is read-only."""


@csrf_exempt  # type: ignore[untyped-decorator] # the dashboard checks its own forms' token
def page(request: HttpRequest, path: str) -> HttpResponse:
    """A page of the dashboard, for users with ``is_staff``; ``livez`` and ``readyz`` are for all.
    Whoever is not logged in is sent to LOGIN_URL if the project sets it, else to the admin's
    login."""
    user = request.user
    if f"/{path}" not in OPEN:
        if not user.is_authenticated:
            return redirect_to_login(request.get_full_path(), _login())
        if not (user.is_active and user.is_staff):
            raise PermissionDenied("the dashboard is for staff: set is_staff")
    prefix = request.path.removesuffix(path).rstrip("/")
    environ = {
        **request.META,
        "SCRIPT_NAME": _bytes(prefix),
        "PATH_INFO": _bytes(f"/{path}"),
        "REQUEST_METHOD": request.method,
        "HTTP_HOST": request.get_host(),
        "REMOTE_USER": user.get_username(),
        "CONTENT_LENGTH": str(len(request.body)),
        "wsgi.input": BytesIO(request.body),
        "wsgi.url_scheme": request.scheme,
    }
    response = HttpResponse()

    def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
        response.status_code = int(status.partition(" ")[0])
        del response.headers["Content-Type"]  # a redirect has none
        for name, value in headers:
            if name.lower() == "set-cookie":
                response.cookies.load(value)
            else:
                response.headers[name] = value

    response.content = b"".join(_site(not user.has_perm(MAY_ACT))(environ, start_response))
    return response


@cache
def _site(read_only: bool) -> Wsgi:
    site = dashboard(
        app, who=lambda request: request.user, read_only=read_only, secret=settings.SECRET_KEY
    )
    return as_wsgi(site, app)


def _login() -> Any:
    if settings.is_overridden("LOGIN_URL"):
        return settings.LOGIN_URL
    try:
        return reverse("admin:login")
    except NoReverseMatch:
        return settings.LOGIN_URL


def _bytes(path: str) -> str:
    """As WSGI has it: each byte as a character."""
    return path.encode().decode("latin-1")
