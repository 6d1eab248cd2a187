"""The demo's output: a live picture on a terminal, plain lines on a pipe, and the scorecard."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from leasework_lab.demo.scorecard import Scorecard
from leasework_lab.demo.tables import SCHEMA

if TYPE_CHECKING:
    from rich.console import RenderableType

LAST_TICKS = 6
STOPPING = "stopping the processes"
_LAST_STORIES = 8
_LINE_SECONDS = 1.0


def next_steps() -> str:
    program = _program()
    lines = [
        (
            f"LEASEWORK_DSN=postgresql://…  {program} demo",
            f"the same in your database (schema {SCHEMA})",
        ),
        (f"LEASEWORK_DSN=postgresql://…  {program} status", "who leads, what runs, what waits"),
        ("README.md", "your first app in 20 lines"),
    ]
    width = max(len(command) for command, _ in lines)
    return "\n".join(["Next:", *[f"  {what:{width}}  {why}" for what, why in lines]])


def _program() -> str:
    """The command to type here to run leasework."""
    me = Path(sys.argv[0])
    found = shutil.which("leasework")
    if me.name != "leasework" or (found and os.path.samefile(found, me)):
        return "leasework"
    return os.path.relpath(me)


@dataclass
class Row:
    """One process as the picture shows it."""

    pid: int
    state: str
    """starting, leads, follows, frozen, cut off, stopping, killed, ended"""
    term: int | None = None
    running: int = 0


@dataclass
class Picture:
    """The demo at one moment. The play writes it; the screen reads it."""

    seconds: float = 0.0
    """Seconds since the start."""
    end_seconds: float | None = None
    """When it ends by itself; None: at Ctrl-C."""
    phase: str = "starting"
    rows: list[Row] = field(default_factory=list)
    ticks: list[tuple[datetime, str]] = field(default_factory=list)
    """Newest first: the moment, and the worker that ran it."""
    ticks_done: int = 0
    enqueued: int = 0
    jobs_done: int = 0
    stories: list[tuple[float, str]] = field(default_factory=list)

    def leader(self) -> Row | None:
        return next((row for row in self.rows if row.state == "leads"), None)


def pid_of(worker_id: str) -> int:
    """The pid in ``host:pid:short-id``."""
    return int(worker_id.rsplit(":", 2)[1])


class Screen(Protocol):
    """Where the picture is shown."""

    def say(self, text: str) -> None:
        """Announce something that takes a while, before the picture is shown."""

    def update(self, picture: Picture) -> None: ...

    def close(self) -> None: ...


class PlainScreen:
    """At most one line per second: what happened, else the counters."""

    def __init__(self) -> None:
        self._next = 0.0
        self._told = 0

    def say(self, text: str) -> None:
        print(text, flush=True)

    def update(self, picture: Picture) -> None:
        if picture.seconds < self._next:
            return
        self._next = picture.seconds + _LINE_SECONDS
        news = [text for _, text in picture.stories[self._told :]]
        self._told = len(picture.stories)
        print(f"{picture.seconds:6.1f} s  {'; '.join(news) or counters(picture)}", flush=True)

    def close(self) -> None:
        """Nothing to restore."""


class LiveScreen:
    """The picture, redrawn in place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console()
        self._live: Live | None = None

    def say(self, text: str) -> None:
        self._console.print(text, style="dim", highlight=False)

    def update(self, picture: Picture) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(_render(picture), refresh=True)

    def close(self) -> None:
        if self._live:
            self._live.stop()
            self._live = None


def make_screen() -> Screen:
    return LiveScreen() if sys.stdout.isatty() else PlainScreen()


_NOBODY = {
    "starting": "the processes start",
    STOPPING: "the processes stop",
    "ended": "the processes have stopped",
}


def counters(picture: Picture) -> str:
    leader = picture.leader()
    nobody = _NOBODY.get(picture.phase, "nobody leads")
    leads = f"pid {leader.pid} leads (term {leader.term})" if leader else nobody
    running = sum(row.running for row in picture.rows)
    return (
        f"{leads} · ticks {picture.ticks_done} · jobs {picture.enqueued} enqueued, "
        f"{picture.jobs_done} done, {running} running"
    )


# -- the live picture ------------------------------------------------------------------------------
_STYLES = {
    "leads": "bold green", "killed": "red", "ended": "red", "starting": "dim", "frozen": "cyan",
    "cut off": "cyan", "stopping": "dim",
}  # fmt: skip


def _render(picture: Picture) -> RenderableType:
    from rich.columns import Columns
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    end = f" of {picture.end_seconds:.0f}" if picture.end_seconds else ""
    head = Text.assemble(
        ("leasework demo", "bold"), f"   {picture.seconds:.0f}{end} s   {picture.phase}"
    )
    if picture.end_seconds is None and picture.phase == "running":
        head.append("   Ctrl-C ends it", style="dim")
    stories = Text()
    for at, text in picture.stories[-_LAST_STORIES:]:
        stories.append(f"{at:6.1f} s  ", style="dim")
        broken = text.startswith(("killed", "kill -9"))
        stories.append(f"{text}\n", style="red" if broken else "")
    stories.rstrip()
    return Group(
        head,
        Columns([_processes(picture), _ticks(picture)]),
        Text(counters(picture), style="cyan"),
        Panel(stories, title="what happened", title_align="left", border_style="dim"),
    )


def _processes(picture: Picture) -> RenderableType:
    from rich.table import Table

    table = Table(title="processes", title_justify="left")
    table.add_column("pid", justify="right")
    table.add_column("", min_width=16)
    table.add_column("running", justify="right")
    for row in picture.rows:
        words = f"leads, term {row.term}" if row.state == "leads" else row.state
        running = "" if row.state in ("killed", "ended") else str(row.running)
        table.add_row(str(row.pid), words, running, style=_STYLES.get(row.state, ""))
    return table


def _ticks(picture: Picture) -> RenderableType:
    from rich.table import Table

    table = Table(title="the schedule: every second", title_justify="left")
    table.add_column("tick (UTC)", min_width=10)
    table.add_column("ran in pid", justify="right")
    for moment, worker in picture.ticks[:LAST_TICKS]:
        table.add_row(f"{moment:%H:%M:%S}", str(pid_of(worker)))
    for _ in range(LAST_TICKS - len(picture.ticks)):
        table.add_row("", "")
    return table


# -- the scorecard ---------------------------------------------------------------------------------
def print_scorecard(card: Scorecard, first_job_seconds: float | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title="scorecard", title_justify="left", show_header=False)
    table.add_column()
    table.add_column()
    for name, value in lines(card, first_job_seconds):
        table.add_row(name, value)
    console = Console(highlight=False)
    console.print()
    console.print(table)
    if card.ok:
        console.print(
            Text(
                "ok: nothing was lost, and nothing was repeated without a cause", style="bold green"
            )
        )
    for problem in card.problems:
        console.print(Text(f"NOT OK: {problem}", style="bold red"), soft_wrap=True)
    console.print()
    console.print(Text(next_steps()), soft_wrap=True)


def lines(card: Scorecard, first_job_seconds: float | None) -> list[tuple[str, str]]:
    """The scorecard as names and text."""
    return [
        (
            "ticks",
            f"{card.due} due, {card.fired} fired, {card.duplicates} twice, {card.missed} missed",
        ),
        (
            "jobs",
            f"{card.enqueued} enqueued, {card.done} done, {card.lost} lost",
        ),
        ("repeated because of a fault", _rerun(card)),
        ("repeated without a cause", str(card.ran_twice)),
        ("new leader after kill -9", _seconds(card.takeover_seconds)),
        ("its running jobs restarted", _seconds(card.recovery_seconds)),
        (
            "first job after the start",
            _seconds(first_job_seconds and round(first_job_seconds, 1)),
        ),
    ]


def _rerun(card: Scorecard) -> str:
    if not card.rerun_after_kill:
        return "0"
    ended = card.rerun_after_kill - card.cut_short
    return f"{card.rerun_after_kill}: {card.cut_short} cut short, {ended} ended but not recorded"


def _seconds(value: Any) -> str:
    return "not measured" if value is None else f"{value:g} s"
