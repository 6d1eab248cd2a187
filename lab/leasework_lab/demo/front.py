"""The demo's dashboard: the usual one, plus a page with buttons that cause faults.

It listens only on 127.0.0.1, and its forms carry the usual form tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import uvicorn
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from leasework.errors import Unavailable
from leasework.watch.terms import with_ends
from leasework.web import dashboard
from leasework.web.charts import Bar, ruler, term_bars
from leasework.web.gate import LOCAL
from leasework.web.leaders import Overlap, overlaps, stretches
from leasework.web.site import Extra, Site
from leasework_lab.demo.app import NAME
from leasework_lab.demo.breaker import WHOLE, Breaker
from leasework_lab.demo.recording import Recording, to_html
from leasework_lab.demo.show import lines, pid_of
from leasework_lab.demo.stage import Stage

_HOST = "127.0.0.1"
_SPAN = timedelta(minutes=2)
_LEAST_SPAN = timedelta(seconds=30)
_KILL = timedelta(seconds=0.4)
_MOST_TERMS = 200
_BUTTONS = (
    ("kill", "Kill the leader", "kill -9 while it runs jobs.", (("kill", "Kill -9"),)),
    ("freeze", "Freeze a process", "SIGSTOP: the process stays but does nothing. When it wakes "
     "up, it believes that no time has passed.",
     (("freeze:worker", "Freeze"), ("freeze:leader", "The leader"), ("thaw", "Thaw"))),
    ("cut", "Cut a network", "One node can no longer reach the database and gets no error.",
     (("cut:worker", "Cut off"), ("cut:leader", "The leader"), ("mend", "Mend"))),
    ("restart", "Restart PostgreSQL", "A crash: every connection breaks, and the server recovers "
     "from its log.", (("restart", "Crash it"),)),
    ("deploy", "Deploy the next release", "Green starts beside blue; then blue is told to stop.",
     (("deploy", "Deploy"),)),
)  # fmt: skip


_VALUES = frozenset(value for *_, acts in _BUTTONS for value, _ in acts)


@dataclass(frozen=True)
class Button:
    title: str
    words: str
    acts: tuple[tuple[str, str], ...]
    why_not: str


@dataclass(frozen=True)
class Lane:
    name: str
    state: str
    hurt: bool
    picture: Markup


class _Server(uvicorn.Server):
    """A server that leaves signals to the demo."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Front:
    """Serves the dashboard: ``open``, and later ``close``."""

    def __init__(self, stage: Stage, breaker: Breaker) -> None:
        self._stage = stage
        self._breaker = breaker
        self._terms: list[tuple[str, Bar]] = []
        self._overlaps: list[Overlap] = []
        self._serving: asyncio.Task[None] | None = None
        extra = Extra(
            (("demo", "Demo", "m"),),
            (
                ("/demo", self._page, False),
                ("/demo/act", self._act, True),
                ("/demo/end", self._end, True),
                ("/demo/report", self._report, False),
            ),
            "leasework_lab.demo",
        )
        app = stage.demo.app
        self._gate = dashboard(app, unprotected=True, hosts=LOCAL, extra=extra)

    @classmethod
    async def open(cls, stage: Stage, breaker: Breaker, port: int) -> Front:
        """Serve it; ``port`` 0: any free port. Raises OSError if the port is taken."""
        front = cls(stage, breaker)
        log = logging.getLogger("uvicorn")  # the requests that it ends need no traceback
        log.addHandler(logging.NullHandler())
        log.propagate = False
        sock = socket.create_server((_HOST, port))
        front.url = f"http://{_HOST}:{sock.getsockname()[1]}/demo"
        config = uvicorn.Config(
            front._gate, log_config=None, lifespan="off", server_header=False,
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        front._server = _Server(config)
        front._serving = asyncio.create_task(front._server.serve(sockets=[sock]))
        return front

    url: str
    _server: _Server

    async def browse(self) -> None:
        """Open it in the user's browser, if that works."""
        with contextlib.suppress(webbrowser.Error, OSError):
            await asyncio.to_thread(webbrowser.open, self.url)

    async def close(self) -> None:
        self._server.should_exit = True
        if self._serving:
            await asyncio.wait([self._serving], timeout=5)
            self._serving.cancel()

    # -- buttons ---------------------------------------------------------------------------------
    async def _act(self, site: Site, request: Request) -> Response:
        act = request.state.form.get("act", "")
        if act not in _VALUES:
            return site.back(request, "demo", "There is no such button.", bad=True)
        kind, _, whom = act.partition(":")
        words, refused = await self._breaker.press(kind, whom)
        return site.back(request, "demo", words, bad=refused)

    async def _end(self, site: Site, request: Request) -> Response:
        self._stage.stop.set()
        return site.back(request, "demo", "No more jobs are enqueued. The running jobs finish.")

    async def _report(self, site: Site, request: Request) -> Response:
        card = self._stage.card
        if card is None:
            return site.back(
                request, "demo", "The report is available when the demo has ended.", bad=True
            )
        text = to_html(card, await Recording.of(self._stage), None)
        headers = {"content-disposition": 'attachment; filename="leasework-demo.html"'}
        return Response(text, media_type="text/html", headers=headers)

    # -- the page --------------------------------------------------------------------------------
    async def _page(self, site: Site, request: Request) -> Response:
        stage, picture = self._stage, self._stage.picture
        with contextlib.suppress(Unavailable):
            await self._look(site, request)
        now = stage.moment(stage.seconds) if stage.clock else None
        since = max(now - _SPAN, min(stage.moment(0.0), now - _LEAST_SPAN)) if now else None
        return await site.render(
            request, "demo.html", page="demo", picture=picture, leader=picture.leader(),
            lanes=self._lanes(since, now) if since and now else [],
            ruler=_ruler(since, now) if since and now else [],
            overlaps=self._overlaps,
            acts=list(reversed(stage.acts)), card=stage.card,
            lines=lines(stage.card, None) if stage.card else [],
            buttons=[Button(t, words, acts, self._breaker.why_not(kind))
                     for kind, t, words, acts in _BUTTONS],
        )  # fmt: skip

    async def _look(self, site: Site, request: Request) -> None:
        """Read who led when; keep the last state while the database is unavailable."""
        if self._stage.database_away or not self._stage.clock:
            return
        operator = await site.operator(request)
        since = self._stage.moment(0.0)
        row = next((r for r in await operator.reports.leaders(10) if r.name == NAME), None)
        if row is None:
            return
        every = await operator.reports.terms_since(since, _MOST_TERMS)
        terms = [one for one in every if one.name == NAME]
        events = await operator.reports.lease_events(since, 1000)
        now = self._stage.moment(self._stage.seconds)
        held, believed = stretches(with_ends(terms, events, [row], now), now)
        self._terms = [*held, *believed]
        self._overlaps = overlaps(NAME, believed)

    def _lanes(self, since: datetime, now: datetime) -> list[Lane]:
        stage, found = self._stage, []
        rows = {row.pid: row for row in stage.picture.rows}
        for worker in stage.fleet.workers:
            ended = worker.ended_at - stage.started_at if worker.ended_at else None
            last = stage.moment(ended) if ended is not None else now
            if last < since:
                continue
            first = stage.moment(worker.started_at - stage.started_at)
            bars = [Bar(first, last, "alive", "lives")]
            bars += [bar for who, bar in self._terms if pid_of(who) == worker.pid]
            bars += self._hurts(stage.lane(worker), now)
            row = rows.get(worker.pid)
            state = row.state if row else "ended"
            words = f"leads, term {row.term}" if row and state == "leads" else state
            name = stage.lane(worker)
            hurt = state in ("frozen", "cut off", "killed")
            found.append(Lane(name, words, hurt, term_bars(bars, since, now, name)))
        away = self._hurts(WHOLE, now)
        state = "away" if stage.database_away else "answers"
        found.append(Lane("PostgreSQL", state, stage.database_away,
                          term_bars(away, since, now, "PostgreSQL")))  # fmt: skip
        return found

    def _hurts(self, name: str, now: datetime) -> list[Bar]:
        """The faults that hit it."""
        found = []
        for act in self._stage.acts:
            if act.lane == name and act.kind in ("kill", "freeze", "cut", "restart"):
                first = self._stage.moment(act.at)
                until = self._stage.moment(act.until) if act.until is not None else now
                struck = act.kind == "kill"
                last = first + _KILL if struck else until
                found.append(Bar(first, last, "struck" if struck else "hurt", act.words))
        return found


def _ruler(since: datetime, now: datetime) -> list[Any]:
    seconds = (now - since).total_seconds()
    marks = ruler(since, now)
    return [f"{seconds * (len(marks) - 1 - n) / (len(marks) - 1):.0f} s ago"
            for n in range(len(marks) - 1)] + ["now"]  # fmt: skip
