"""The endpoints ``/metrics``, ``/livez`` and ``/readyz``: part of the dashboard, or to mount. They
need no login: ``/metrics`` shows the names of queues, tasks and schedules, but no arguments."""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from leasework import errors
from leasework.app import App
from leasework.app.metrics import CONTENT_TYPE, Exposition
from leasework.tuning import Tuning
from leasework.watch.checks import database_problem


class Probes:
    def __init__(self, app: App) -> None:
        self._app = app
        self._exposition = Exposition(app)

    async def live(self, request: Request) -> Response:
        """This process answers. It does not query the database, because restarting this process
        would not repair that."""
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        """The database answers and its schema fits."""
        try:
            async with asyncio.timeout(Tuning.ready_seconds):
                operator = await self._app.operator("", "probe")
                await operator.reports.check_schema()
        except TimeoutError:
            return PlainTextResponse("database_away\n", status_code=503)
        except errors.LeaseworkError as error:
            return PlainTextResponse(f"{database_problem(error).kind}\n", status_code=503)
        return PlainTextResponse("ok\n")

    async def metrics(self, request: Request) -> Response:
        try:
            text = await self._exposition.text()
        except errors.ConfigError as error:
            return PlainTextResponse(f"{error}\n", status_code=501)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    def routes(self) -> list[Route]:
        return [
            Route("/livez", self.live),
            Route("/readyz", self.ready),
            Route("/metrics", self.metrics),
        ]


def probes(app: App) -> Starlette:
    """An ASGI application with ``/metrics``, ``/livez`` and ``/readyz``. They need no login."""
    return Starlette(routes=list(Probes(app).routes()))
