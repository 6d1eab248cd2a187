"""The dashboard's ASGI application: which path shows which page, and how errors are shown."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from mimetypes import guess_type

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from leasework import errors
from leasework.app import App
from leasework.watch.checks import database_problem
from leasework.web import acts, flow, history, jobs, leaders, lists, overview, schedules
from leasework.web.gate import Gate, Rules, Who
from leasework.web.login import Login, Sessions
from leasework.web.probes import Probes
from leasework.web.site import STATIC, Extra, Page, Site


def routes() -> list[tuple[str, Page, bool]]:
    """(path, page, True if it receives a posted form)"""
    return [
        ("/", overview.home, False),
        ("/now", overview.now, False),
        ("/live", overview.live, False),
        ("/problems/act", lists.on_problem, True),
        ("/jobs", jobs.listing, False),
        ("/jobs/bulk", jobs.preview, False),
        ("/jobs/bulk", acts.bulk, True),
        ("/jobs/selected", acts.selected, True),
        ("/jobs/{job}", jobs.one, False),
        ("/jobs/{job}/act", acts.on_job, True),
        ("/failures", lists.failures, False),
        ("/queues", flow.queues, False),
        ("/queues/act", flow.on_queue, True),
        ("/limits", flow.limits, False),
        ("/limits/act", flow.on_limit, True),
        ("/schedules", schedules.listing, False),
        ("/schedules/act", acts.on_schedule, True),
        ("/schedules/put", acts.put_schedule, True),
        ("/history", history.history, False),
        ("/leaders", leaders.listing, False),
        ("/nodes", lists.nodes, False),
        ("/nodes/act", acts.on_node, True),
        ("/nodes/{node}", lists.node, False),
        ("/locks", lists.locks, False),
        ("/deadlines", lists.deadlines, False),
        ("/database", lists.database, False),
        ("/events", lists.events, False),
        ("/login", acts.ask_login, False),
        ("/login", acts.login, True),
        ("/logout", acts.logout, True),
        ("/sessions/act", acts.end_sessions, True),
    ]


def dashboard(
    app: App,
    *,
    login: Login | None = None,
    unprotected: bool = False,
    who: Who | None = None,
    read_only: bool = False,
    hosts: frozenset[str] | None = None,
    extra: Extra | None = None,
    secret: str = "",
    prefix: str = "",
) -> Gate:
    """The dashboard of an application, to mount or to run.

    It needs exactly one of three: ``login``; ``who``, a function from the request to the name of
    the person, or to the name and a role (None: nobody), for an application with logins of its own;
    ``unprotected=True`` if something in front of the dashboard controls access. ``read_only``
    refuses every action. ``hosts``: the only host names to serve. ``extra``: the pages of
    leasework's own demo. ``secret`` signs the cookies; without it, that is the login's secret or
    the DSN. ``prefix``: the path under which a proxy serves it, such as ``/ops``; a mounted
    dashboard knows its own. Raises ConfigError.
    """
    if sum((login is not None, who is not None, unprotected)) != 1:
        raise errors.ConfigError(
            "the dashboard needs one of login=, who= and unprotected=True",
            do="dashboard(app, login=Login(token=…)); it shows arguments and can cancel jobs",
        )
    rules = Rules(login, read_only, who, hosts, _checked(prefix))
    sessions = Sessions(app.env, secret or (login.secret if login else app.settings.dsn))
    site = Site(app, rules, sessions, extra)

    async def refused(came_from: str) -> None:
        await (await app.operator("nobody", "web")).refused_login(came_from)

    probes = Probes(app)
    pages = [*routes(), ("/metrics", lambda _, asked: probes.metrics(asked), False)]
    table: list[Route] = [
        Route(path, _safely(site, page, path), methods=["POST"] if post else ["GET"])
        for path, page, post in (*pages, *(extra.routes if extra else ()))
    ]
    inside = Starlette(
        routes=[*table, *probes.routes(), Route("/static/{name:path}", _static)],
        exception_handlers={
            HTTPException: partial(_missing, site),
            Exception: partial(_broken, site),
        },
    )
    return Gate(inside, rules, sessions, refused)


def _checked(prefix: str) -> str:
    """The prefix, without a slash at its end."""
    prefix = prefix.rstrip("/")
    names = {path.split("/")[1] for path, *_ in routes()} | {"static", "metrics", "livez", "readyz"}
    if prefix and not re.fullmatch(r"(/[\w.~-]+)+", prefix, re.ASCII):
        raise errors.ConfigError("a prefix begins with a slash, such as /ops", got=prefix)
    if prefix and prefix.split("/")[1] in names:
        # without it, nobody could tell whether a proxy has taken it away
        raise errors.ConfigError("a prefix must not begin like a page of the dashboard", got=prefix)
    return prefix


def _safely(site: Site, page: Page, path: str) -> Callable[[Request], Awaitable[Response]]:
    """Check the session and the role. Turn leasework's errors into pages that say what to do."""

    async def run(request: Request) -> Response:
        try:
            return await site.stop(request, path) or await page(site, request)
        except errors.JobNotFound as error:
            return await site.problem(request, 404, "Not found", str(error))
        except errors.UsageError as error:
            return await site.problem(request, 400, "Invalid request", str(error))
        except errors.Conflict as error:
            return await site.problem(request, 409, "Conflict", str(error))
        except errors.LeaseworkError as error:
            told = database_problem(error)
            title = told.sentence.partition(" LINE ")[0]  # without the statement's text
            return await site.problem(request, 503, title, told.do)

    return run


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    fresh = {"cache-control": "max-age=3600"}
    return Response(STATIC[name], headers=fresh, media_type=guess_type(name)[0])


async def _missing(site: Site, request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    if not hasattr(request.state, "session"):  # a static file
        return Response(status_code=status)
    title = "Page not found" if status == 404 else "Not allowed"

    async def missing(site: Site, request: Request) -> Response:
        return await site.problem(request, status, title, "")

    return await _safely(site, missing, "")(request)


async def _broken(site: Site, request: Request, error: Exception) -> Response:
    do = "See the log of the dashboard for the traceback."
    return await site.problem(request, 500, "Internal error", do)
