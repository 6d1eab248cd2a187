"""The checks that every request passes before a page sees it (host, login, read-only, forged
posts, size), and the headers of every response."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import parse_qsl
from weakref import WeakValueDictionary

from msgspec import Struct
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leasework.errors import ConfigError, suggest
from leasework.tuning import Tuning
from leasework.web.login import Login, LoginSession, Sessions
from leasework.web.rights import ROLES, Role

COOKIE = "leasework_session"
OPEN = frozenset({"/livez", "/readyz"})
"""Open to machines without a login: they learn a single word."""
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
Who: TypeAlias = Callable[[Request], "str | tuple[str, Role] | None"]
"""The person, who may do everything, or the person and the role. None: nobody."""
Refused: TypeAlias = Callable[[str], Awaitable[None]]


class Rules(Struct, frozen=True):
    """``login`` None: everybody who reaches the page may use it. ``hosts``: the names it is served
    under (None: any, which allows DNS rebinding). ``prefix``: where a server that knows nothing of
    it serves the pages."""

    login: Login | None
    read_only: bool
    who: Who | None = None
    hosts: frozenset[str] | None = None
    prefix: str = ""


class Gate:
    """Wraps all pages. Puts itself, ``session``, ``role`` and ``form`` into the request's state."""

    def __init__(self, inside: ASGIApp, rules: Rules, sessions: Sessions, refused: Refused) -> None:
        self._inside = inside
        self._rules = rules
        self._sessions = sessions
        self._refused = refused
        self._one_at_a_time = asyncio.Lock()
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._inside(scope, receive, send)
            return
        scope = _whole(scope, self._rules.prefix)
        request = Request(scope, receive)
        path = _path(request)
        static = path.startswith("/static/")

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                if not static:
                    headers["cache-control"] = "no-store"
            await send(message)

        try:
            answer = None if static or path in OPEN else await self._stop(request)
        except ClientDisconnect:
            return
        await (answer or self._inside)(scope, receive, dressed)

    async def _stop(self, request: Request) -> Response | None:
        """The response to a request that is stopped here, or None to let it pass."""
        if request.method not in ("GET", "HEAD", "POST"):
            return _refusal(405, "Only GET and POST")
        if len(request.url.query) > Tuning.query_bytes:
            return _refusal(414, "The query is too long")
        hosts = self._rules.hosts
        if hosts is not None and (request.url.hostname or "") not in hosts:
            return _refusal(421, "This host name is not served here")
        kept = self._sessions.unpack(request.cookies.get(COOKIE, ""))
        request.state.role = "viewer"
        session = await self._session(request, kept)
        entering = _path(request) == "/login"
        if session is None and entering and self._rules.login:
            session = kept or self._sessions.new("")  # nobody's yet, for the form's token
        if session is None:
            return self.ask(request)
        request.state.gate, request.state.session, request.state.form = self, session, {}
        request.state.fresh = session if session != kept else None
        if request.method == "POST":
            return await self._stop_post(request, session, entering)
        return None

    async def _session(self, request: Request, kept: LoginSession | None) -> LoginSession | None:
        """The request's session. Without a login everybody gets one, for its form token."""
        rules, basic = self._rules, _basic(request)
        role: Role | None
        if rules.login is None:
            given = rules.who(request) if rules.who else "local"
            who, role = given if isinstance(given, tuple) else (given, "admin")
        elif kept and kept.who and kept.epoch >= 0:
            who, role = kept.who, rules.login.role(kept.who)
        else:
            who = await self._who(request, rules.login, *basic) if basic else None
            role = rules.login.role(who) if who else None
        if not who or role is None:
            return None
        if role not in ROLES:
            raise ConfigError("who= returned an unknown role", got=role, do=suggest(role, ROLES))
        request.state.role = role
        return kept if kept and kept.who == who else self._sessions.new(who)

    async def _stop_post(
        self, request: Request, session: LoginSession, entering: bool
    ) -> Response | None:
        if self._rules.read_only and not entering and _path(request) != "/logout":
            return _refusal(403, "This dashboard is read-only")
        if not _same_origin(request):
            why = (
                "This request came from another site. If it did not, "
                "the proxy in front of the dashboard does not pass the Host header on"
            )
            return _refusal(403, why)
        if not request.headers.get("content-type", "").startswith(
            "application/x-www-form-urlencoded"
        ):
            return _refusal(415, "Send a form")
        body = await _body(request)
        if body is None:
            return _refusal(413, "The form is too large")
        try:
            pairs = parse_qsl(
                body.decode(), keep_blank_values=True, max_num_fields=Tuning.form_fields,
                errors="strict",
            )  # fmt: skip
        except ValueError:
            return _refusal(400, "The form is invalid")
        form = dict(pairs)
        given = form.pop("form_token", "") or request.headers.get("x-form-token", "")
        if not self._sessions.right_form_token(session, given):
            return _refusal(403, "The form belongs to another session: load the page again")
        request.state.form = form
        return None

    async def enter(self, request: Request) -> str | None:
        """Check the login form. Returns the name, or None if it is wrong."""
        login, form = self._rules.login, request.state.form
        if login is None:
            return "local"
        return await self._who(request, login, form.get("name", ""), form.get("secret", ""))

    async def _who(self, request: Request, login: Login, name: str, secret: str) -> str | None:
        """The name, or None. A wrong login waits its turn and is recorded as an event. While ten of
        an address wait, no other of it is read: guesses at once are no faster."""
        came_from = request.client.host if request.client else "?"
        turns = self._turns.setdefault(came_from, asyncio.Semaphore(10))
        if turns.locked():
            return None
        async with turns:
            if (who := login.who(name, secret)) is None:
                async with self._one_at_a_time:
                    await asyncio.sleep(Tuning.wrong_login_seconds)
                await self._refused(came_from)
        return who

    def ask(self, request: Request) -> Response:
        """The response to nobody: log in."""
        if self._rules.login is None:
            return _refusal(401, "You are not logged in: log in to the application")
        target = f"{request.scope.get('root_path', '')}/login"
        if request.headers.get("hx-request"):
            return Response(status_code=401, headers={"hx-redirect": target})
        if "text/html" not in request.headers.get("accept", ""):
            return _refusal(401, "Log in", {"www-authenticate": 'Basic realm="leasework"'})
        return RedirectResponse(target, status_code=303)


def keep(response: Response, request: Request, name: str, value: str, seconds: float) -> None:
    """Set a cookie that scripts cannot read and that other sites' forms do not send."""
    response.set_cookie(
        name,
        value,
        max_age=int(seconds),
        path=request.scope.get("root_path", "") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def _whole(scope: Scope, prefix: str) -> Scope:
    """The scope with its whole path, even if a proxy has taken a prefix away."""
    root, path = scope.get("root_path") or prefix, scope["path"]
    if root and path != root and not path.startswith(f"{root}/"):
        path = scope.get("app_root_path", root) + path
    return {**scope, "root_path": root, "path": f"{root}/" if path == root else path}


def _path(request: Request) -> str:
    path: str = request.scope["path"]
    root: str = request.scope.get("root_path", "")
    return path.removeprefix(root) if root and path.startswith(root) else path


def _refusal(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{why}.\n", status_code=status, headers=headers)


def _same_origin(request: Request) -> bool:
    """Do the browser's headers allow the form? A program that sends none needs only its token.

    A browser sends Sec-Fetch-Site over TLS and to localhost, and no page can forge it. Without it,
    the origin must be this host, which a proxy must not have replaced."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host", "")


def _basic(request: Request) -> tuple[str, str] | None:
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        name, colon, secret = base64.b64decode(value, validate=True).decode().partition(":")
    except ValueError:
        return None
    return (name, secret) if colon else None


async def _body(request: Request) -> bytes | None:
    """The body, or None if it exceeds the limit."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > Tuning.body_bytes:
            return None
        parts.append(part)
    return b"".join(parts)
