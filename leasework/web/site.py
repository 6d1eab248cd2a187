"""What the dashboard's pages share: templates, sessions, and redirects after an action."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
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
from leasework.web.rights import NEEDS, allows, needed

Page: TypeAlias = "Callable[[Site, Request], Awaitable[Response]]"
SAID = "leasework_said"
STATIC = {f.name: f.read_bytes() for f in files("leasework.web").joinpath("static").iterdir()}
"""In memory: the package may be in a zip file."""
_STAMP = hashlib.sha256(b"".join(STATIC[name] for name in sorted(STATIC))).hexdigest()[:10]
"""So that browsers may cache them."""
OPEN_FORMS = ("/login", "/logout")
"""For everybody, and for sessions that have ended."""
PAGES = (
    ("now", "Overview", "n"),
    ("jobs", "Jobs", "j"),
    ("failures", "Failures", "f"),
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
            pages=pages,
            version=VERSION,
            static=_STAMP,
            rate_text=rate_text,
            replica=bool(app.settings.replica),
        )

    async def operator(self, request: Request) -> Operator:
        reason = request.state.form.get("reason", "").strip()
        return await self.app.operator(request.state.session.who, "web", reason)

    async def stop(self, request: Request, path: str) -> Response | None:
        """The response to a session that has ended, or to an action that is refused. None: go on.
        ``path``: the page's."""
        session, act = request.state.session, request.state.form.get("act", "")
        acts = request.method == "POST" and path not in OPEN_FORMS
        kept = self.rules.login is not None and session.epoch >= 0 and path not in OPEN_FORMS
        if acts and not allows(request.state.role, path, act):
            do = f"It needs the role {needed(path, act)}. You have the role {request.state.role}."
            return await self.problem(request, 403, "You may not do this", do)
        if not kept and not (acts and path in NEEDS):
            return None
        reports = (await self.app.operator("", "web")).reports
        epoch, ended, records = await reports.session(session.nonce)
        if kept and (ended or epoch != session.epoch):
            answer: Response = request.state.gate.ask(request)
            answer.delete_cookie(COOKIE, path=request.scope.get("root_path", "") or "/")
            return answer
        if acts and not records:
            do = "Give the dashboard a login in the role operator: leasework schema sql --roles"
            title = "This database login may not record actions"
            return await self.problem(request, 403, title, do)
        return None

    async def problem(
        self, request: Request, status: int, title: str, do: str, page: str = ""
    ) -> Response:
        return await self.render(request, "problem.html", status, page=page, title=title, do=do)

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
            read_only=self.rules.read_only or request.state.role == "viewer",
            may=partial(allows, request.state.role),
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
