"""``leasehold demo``: four real processes share one schedule and one queue, and one is killed."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.env import Env
from leasehold.errors import ConfigError

if TYPE_CHECKING:
    from leasehold.cli.demo.scorecard import Scorecard


def run(seconds: int | None = None, report: Path | None = None) -> int:
    """Show it. ``seconds``: from the start to the end of the stream of jobs, 1 to 3600, at least
    four after all processes have joined (None: until Ctrl-C); ``report``: where the scorecard
    goes as JSON.

    Returns 0 when nothing was lost and nothing ran twice, else 1 (it was said what is wrong).
    Raises a LeaseholdError when the demo cannot run: ConfigError, EmbeddedError, or what the
    database says.
    """
    from leasehold.cli.demo.play import MAX_SECONDS

    env = Env()
    started_at = env.boot_now()
    if seconds is not None and not 1 <= seconds <= MAX_SECONDS:
        raise ConfigError(f"the demo takes from 1 to {MAX_SECONDS} seconds", got=seconds)
    if report:
        _check_writable(report)
    # what the parent has to say is on the screen
    logging.getLogger("leasehold").addHandler(logging.NullHandler())
    try:
        card = asyncio.run(_run(env, started_at, seconds))
    except asyncio.CancelledError:
        card = None
    if card is None:
        print("Stopped before there was anything to count.")
        return 1
    if report:
        report.write_text(json.dumps(card.to_json(), indent=2) + "\n")
    return 0 if card.ok else 1


async def _run(env: Env, started_at: float, seconds: int | None) -> Scorecard | None:
    """None: it was stopped before it began."""
    from leasehold.cli.demo.database import DemoDatabase
    from leasehold.cli.demo.play import perform
    from leasehold.cli.demo.show import make_screen, print_scorecard

    stop = asyncio.Event()
    _listen_to_signals(stop)
    screen = make_screen()
    screen.say("Starting …")
    database = await asyncio.to_thread(DemoDatabase.open, env)
    try:
        screen.say(f"Database: {database.title}. {database.hint}")
        if stop.is_set():
            return None
        with tempfile.TemporaryDirectory(prefix="leasehold-demo-") as logs:
            try:
                card, first_job = await perform(
                    database.dsn, Path(logs), started_at, seconds, stop, screen
                )
            finally:
                screen.close()
        print_scorecard(card, first_job)
        return card
    finally:
        await asyncio.to_thread(database.close)


def _listen_to_signals(stop: asyncio.Event) -> None:
    """The first one ends the run, and the scorecard follows; the second one ends it at once."""
    loop, me = asyncio.get_running_loop(), asyncio.current_task()

    def on_signal() -> None:
        if stop.is_set() and me:
            me.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)


def _check_writable(report: Path) -> None:
    """Now, and not after the run."""
    try:
        report.open("a").close()
    except OSError as error:
        raise ConfigError(
            "the report cannot be written there", got=f"{report}: {error.strerror}"
        ) from None
