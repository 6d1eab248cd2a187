"""The dashboard's ASGI application: routes, templates, and how errors look."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from leasehold import __version__, errors
from leasehold.watch.checks import database_problem
from leasehold.watch.operator import Operator
from leasehold.web import words
from leasehold.web.gate import COOKIE, Gate, Rules, Who, keep
from leasehold.web.login import SESSION_SECONDS, Login, Sessions
from leasehold.web.probes import Probes
from leasehold.web.pulse import Pulse

if TYPE_CHECKING:
    from leasehold.app import App

Page: TypeAlias = "Callable[[Site, Request], Awaitable[Response]]"
SAID = "leasehold_said"
PAGES = (
    ("now", "Overview", "n"),
    ("jobs", "Jobs", "j"),
    ("schedules", "Schedules", "s"),
    ("leaders", "Leaders", "l"),
    ("nodes", "Nodes", "o"),
    ("locks", "Locks", "k"),
    ("deadlines", "Deadlines", "r"),
    ("database", "Database", "d"),
    ("events", "Events", "e"),
)
"""Path, heading, and the key that follows ``g``."""


@dataclass(frozen=True)
class Extra:
    """Pages beside ours, behind the same gate; the demo adds some. ``templates``: the package in
    whose folder of that name they lie."""

    pages: tuple[tuple[str, str, str], ...]
    """As PAGES; they come first."""
    routes: tuple[tuple[str, Page, bool], ...]
    """(path, page, True for a form that is posted)"""
    templates: str


class Site:
    """What the pages share."""

    def __init__(
        self, app: App, rules: Rules, sessions: Sessions, extra: Extra | None = None
    ) -> None:
        self.app = app
        self.rules = rules
        self.sessions = sessions
        self.pulse = Pulse(app)
        self.gate: Gate | None = None
        packages = ["leasehold.web", *([extra.templates] if extra else [])]
        pages = (*(extra.pages if extra else ()), *PAGES)
        self.templates = Environment(
            loader=ChoiceLoader([PackageLoader(name) for name in packages]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters.update(words.FILTERS)
        self.templates.globals.update(pages=pages, version=__version__, static=_stamp())

    async def operator(self, request: Request) -> Operator:
        return await self.app.operator(request.state.session.who, "web")

    async def render(
        self, request: Request, template: str, status: int = 200, **given: Any
    ) -> Response:
        """A page; ``given`` is what its template shows."""
        root = request.scope.get("root_path", "")
        session = request.state.session
        text = self.templates.get_template(template).render(
            url=lambda path="", **query: (
                f"{root}/{path}" + (f"?{query_text(query)}" if query else "")
            ),
            here=f"{request.url.path}" + (f"?{request.url.query}" if request.url.query else ""),
            pulse=self.pulse.newest,
            read_only=self.rules.read_only,
            can_leave=self.rules.login is not None,
            who=session.who,
            form_token=self.sessions.form_token(session),
            said=self.sessions.read("said", request.cookies.get(SAID, "")),
            **given,
        )
        response = HTMLResponse(text, status_code=status)
        if request.state.fresh:
            keep(response, request, COOKIE, self.sessions.pack(session), SESSION_SECONDS)
        if request.cookies.get(SAID) and not request.headers.get("hx-request"):
            response.delete_cookie(SAID, path=root or "/")
        return response

    def back(self, request: Request, path: str, said: str, *, bad: bool = False) -> Response:
        """To another page, which says what was done."""
        root = request.scope.get("root_path", "")
        response = RedirectResponse(f"{root}/{path}", status_code=303)
        keep(response, request, SAID, self.sessions.sign("said", [said[:500], bad], 30.0), 30.0)
        return response


def query_text(query: dict[str, Any]) -> str:
    return urlencode({name: value for name, value in query.items() if value}, quote_via=quote)


def _stamp() -> str:
    """Changes with the static files, so that browsers may keep them."""
    folder = files("leasehold.web").joinpath("static")
    digest = hashlib.sha256()
    for name in ("dash.css", "dash.js", "htmx.min.js"):
        digest.update(folder.joinpath(name).read_bytes())
    return digest.hexdigest()[:10]


def dashboard(
    app: App,
    *,
    login: Login | None = None,
    unprotected: bool = False,
    who: Who | None = None,
    read_only: bool = False,
    hosts: frozenset[str] | None = None,
    extra: Extra | None = None,
) -> Gate:
    """The dashboard of an application, to be mounted or run.

    It wants a ``login``; or ``who``, a function from the request to the name of who asks (None:
    nobody), for an application that has logins of its own; or ``unprotected=True`` where
    something in front of it decides who comes in. ``read_only`` refuses every act. ``hosts``: the
    host names under which it is served; others are refused. ``extra``: pages of leasehold's own
    demo. Raises ConfigError.
    """
    if sum((login is not None, who is not None, unprotected)) != 1:
        raise errors.ConfigError(
            "the dashboard needs one of login=, who= and unprotected=True",
            do="dashboard(app, login=Login(token=…)); it shows arguments and can end jobs",
        )
    rules = Rules(login, read_only, who, hosts)
    secret = login.secret if login else app.settings.dsn
    sessions = Sessions(app.env, secret)
    site = Site(app, rules, sessions, extra)

    async def refused(came_from: str) -> None:
        await (await app.operator("nobody", "web")).refused_login(came_from)

    from leasehold.web.routes import routes

    table: list[Route | Mount] = [
        Route(path, _safely(site, page), methods=["POST"] if post else ["GET"])
        for path, page, post in (*routes(), *(extra.routes if extra else ()))
    ]
    static = StaticFiles(directory=Path(str(files("leasehold.web").joinpath("static"))))
    inside = Starlette(
        routes=[*table, *Probes(app).routes(), Mount("/static", static)],
        exception_handlers={
            HTTPException: partial(_missing, site),
            Exception: partial(_broken, site),
        },
    )
    gate = Gate(inside, rules, sessions, refused)
    site.gate = gate
    return gate


def _safely(site: Site, page: Page) -> Callable[[Request], Awaitable[Response]]:
    """Errors of ours become pages that say what to do."""

    async def run(request: Request) -> Response:
        try:
            return await page(site, request)
        except errors.JobNotFound as error:
            return await _problem(site, request, 404, "Not found", error)
        except errors.UsageError as error:
            return await _problem(site, request, 400, "Invalid request", error)
        except errors.Conflict as error:
            return await _problem(site, request, 409, "Conflict", error)
        except errors.LeaseholdError as error:
            told = database_problem(error)
            title = told.sentence.partition(" LINE ")[0]  # of a statement of ours
            return await site.render(request, "problem.html", 503, page="", title=title, do=told.do)

    return run


async def _problem(
    site: Site, request: Request, status: int, title: str, error: errors.LeaseholdError
) -> Response:
    return await site.render(request, "problem.html", status, page="", title=title, do=str(error))


async def _missing(site: Site, request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    if not hasattr(request.state, "session"):  # a static file
        return Response(status_code=status)
    title = "Page not found" if status == 404 else "Not allowed"
    return await site.render(request, "problem.html", status, page="", title=title, do="")


async def _broken(site: Site, request: Request, error: Exception) -> Response:
    return await site.render(
        request, "problem.html", 500, page="", title="Internal error",
        do="See the log of the dashboard for the traceback.",
    )  # fmt: skip
