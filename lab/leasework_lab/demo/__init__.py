"""``leasework demo``: four real processes share one schedule and one queue, and one is killed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leasework.env import Env
from leasework.errors import ConfigError

if TYPE_CHECKING:
    from leasework_lab.demo.play import Ending, Wishes


def run(
    seconds: int | None = None,
    reports: Sequence[Path] = (),
    *,
    web: bool | None = None,
    port: int | None = None,
    browse: bool = True,
) -> int:
    """Run the demo. ``seconds``: from the start to the end of the stream of jobs, 1 to 3600, and at
    least four after all processes have joined (None: until Ctrl-C). ``reports``: files for the
    scorecard, as a page (``.html``) or as JSON. ``web``: serve a dashboard on which things can be
    broken (None: if the demo has no fixed end and the extra ``web`` is installed), at ``port``
    (None: any free one), and open a browser if ``browse`` and there is a display.

    Returns 0 if nothing was lost and nothing ran twice, else 1 (the problems have been printed).
    Raises a LeaseworkError if the demo cannot run: ConfigError, EmbeddedError, or the database's
    error.
    """
    from leasework_lab.demo.play import MAX_SECONDS

    env = Env()
    started_at = env.boot_now()
    if seconds is not None and not 1 <= seconds <= MAX_SECONDS:
        raise ConfigError(f"--seconds must be from 1 to {MAX_SECONDS}", got=seconds)
    for report in reports:
        _check_writable(report)
    lacks = _lacks_for_web()
    if web and lacks:
        raise ConfigError(
            f"the dashboard needs the package {lacks}", do="install leasework's extra 'web'"
        )
    shown = not lacks and seconds is None if web is None else web
    # the parent's own events are on the screen
    logging.getLogger("leasework").addHandler(logging.NullHandler())
    try:
        browses = browse and _has_display()
        ending = asyncio.run(_run(env, started_at, seconds, shown, port or 0, browses))
    except asyncio.CancelledError:
        ending = None
    if ending is None:
        print("Stopped before the first job ran.")
        return 1
    for report in reports:
        _write(report, ending)
    return 0 if ending.card.ok else 1


async def _run(
    env: Env, started_at: float, seconds: int | None, web: bool, port: int, browse: bool
) -> Ending | None:
    """None if it was stopped before it began."""
    from leasework_lab.demo.database import DemoDatabase
    from leasework_lab.demo.play import Wishes, perform
    from leasework_lab.demo.show import make_screen

    wishes = Wishes(seconds, asyncio.Event(), asyncio.Event(), web, port, browse)
    _listen_to_signals(wishes)
    screen = make_screen()
    screen.say("Starting …")
    database = await asyncio.to_thread(DemoDatabase.open)
    try:
        screen.say(f"Database: {database.title}. {database.hint}")
        if wishes.stop.is_set():
            return None
        with tempfile.TemporaryDirectory(prefix="leasework-demo-") as logs:
            try:
                return await perform(database, Path(logs), started_at, wishes, screen)
            finally:
                screen.close()
    finally:
        await asyncio.to_thread(database.close)


def _lacks_for_web() -> str:
    """The package that the dashboard needs and that is missing, or an empty string."""
    for name in ("starlette", "jinja2", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            return name
    return ""


def _has_display() -> bool:
    if sys.platform in ("darwin", "win32"):
        return not os.environ.get("SSH_CONNECTION")
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _write(report: Path, ending: Ending) -> None:
    if report.suffix.lower() in (".html", ".htm"):
        from leasework_lab.demo.recording import to_html

        text = to_html(ending.card, ending.recording, ending.first_job_seconds)
    else:
        text = json.dumps(ending.card.to_json(), indent=2) + "\n"
    report.write_text(text, "utf-8")


def _listen_to_signals(wishes: Wishes) -> None:
    """The first signal ends the run, and the scorecard follows; the second ends it at once."""
    loop, me = asyncio.get_running_loop(), asyncio.current_task()

    def on_signal() -> None:
        if wishes.quit.is_set() and me:
            me.cancel()
        wishes.stop.set()
        wishes.quit.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)


def _check_writable(report: Path) -> None:
    """Fail now instead of after the run."""
    try:
        report.open("a").close()
    except OSError as error:
        raise ConfigError(
            "the report cannot be written", got=f"{report}: {error.strerror}"
        ) from None
