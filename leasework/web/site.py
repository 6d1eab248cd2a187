"""What the dashboard's pages share: templates, sessions, and redirects after an action."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from leasework.app import App
from leasework.errors import ConfigError, UsageError, suggest
from leasework.model.moments import rate_text
from leasework.tuning import Tuning
from leasework.version import VERSION
from leasework.watch.operator import Operator
from leasework.web import words
from leasework.web.gate import COOKIE, Rules, keep
from leasework.web.login import Sessions
from leasework.web.pulse import Pulse

Page: TypeAlias = "Callable[[Site, Request], Awaitable[Response]]"
SAID = "leasework_said"
PAGES = (
    ("now", "Overview", "n"),
    ("jobs", "Jobs", "j"),
    ("queues", "Queues", "q"),
    ("limits", "Limits", "i"),
    ("schedules", "Schedules", "s"),
    ("leaders", "Leaders", "l"),
    ("nodes", "Nodes", "o"),
    ("locks", "Locks", "k"),
    ("deadlines", "Deadlines", "r"),
    ("database", "Database", "d"),
    ("events", "Events", "e"),
)
"""Path, heading, and the key that follows ``g``."""


class Extra(Struct, frozen=True):
    """Additional pages behind the same gate, used by the demo. ``templates``: the package whose
    ``templates`` folder has theirs."""

    pages: tuple[tuple[str, str, str], ...]
    """As in PAGES; they come first."""
    routes: tuple[tuple[str, Page, bool], ...]
    """(path, page, True if it receives a posted form)"""
    templates: str


class Site:
    """The application, its rules and its templates, shared by all pages."""

    def __init__(
        self, app: App, rules: Rules, sessions: Sessions, extra: Extra | None = None
    ) -> None:
        self.app = app
        self.rules = rules
        self.sessions = sessions
        self.pulse = Pulse(app)
        packages = ["leasework.web", *([extra.templates] if extra else [])]
        pages = (*(extra.pages if extra else ()), *PAGES)
        self.templates = Environment(
            loader=ChoiceLoader([PackageLoader(name) for name in packages]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters.update(words.FILTERS)
        self.templates.globals.update(
            pages=pages, version=VERSION, static=_stamp(), rate_text=rate_text
        )

    async def operator(self, request: Request) -> Operator:
        return await self.app.operator(request.state.session.who, "web")

    async def render(
        self, request: Request, template: str, status: int = 200, **given: Any
    ) -> Response:
        """Render a page; ``given`` has the values for its template."""
        root = request.scope.get("root_path", "")
        session = request.state.session
        # a page of the navigation; not the login, nor an error, which must come at once
        pulse = await self.pulse.beat() if given.get("page") and status < 400 else self.pulse.newest
        text = self.templates.get_template(template).render(
            url=lambda path="", **query: (
                f"{root}/{path}" + (f"?{query_text(query)}" if query else "")
            ),
            here=f"{request.url.path}" + (f"?{request.url.query}" if request.url.query else ""),
            pulse=pulse,
            read_only=self.rules.read_only,
            can_leave=self.rules.login is not None,
            who=session.who,
            form_token=self.sessions.form_token(session),
            said=self.sessions.read("said", request.cookies.get(SAID, "")),
            **given,
        )
        response = HTMLResponse(text, status_code=status)
        if request.state.fresh:
            keep(response, request, COOKIE, self.sessions.pack(session), Tuning.login_seconds)
        if request.cookies.get(SAID) and not request.headers.get("hx-request"):
            response.delete_cookie(SAID, path=root or "/")
        return response

    def back(self, request: Request, path: str, said: str, *, bad: bool = False) -> Response:
        """Redirect to a page that shows ``said``."""
        root = request.scope.get("root_path", "")
        response = RedirectResponse(f"{root}/{path}", status_code=303)
        keep(response, request, SAID, self.sessions.sign("said", [said[:500], bad], 30.0), 30.0)
        return response


def act_of(request: Request, known: Sequence[str], wrong: type[UsageError] = ConfigError) -> str:
    """The button of the posted form. Raises ``wrong`` for one that is not known."""
    act: str = request.state.form.get("act", "")
    if act not in known:
        raise wrong("no such action", got=act[:40], do=suggest(act, known))
    return act


def query_text(query: dict[str, Any]) -> str:
    return urlencode({name: value for name, value in query.items() if value}, quote_via=quote)


def _stamp() -> str:
    """A digest of the static files, so that browsers may cache them."""
    folder = files("leasework.web").joinpath("static")
    digest = hashlib.sha256()
    for name in ("dash.css", "dash.js", "htmx.min.js"):
        digest.update(folder.joinpath(name).read_bytes())
    return digest.hexdigest()[:10]
