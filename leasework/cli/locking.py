"""A single run of ``leasework lock``."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from leasework.cli.output import text

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from leasework.app import App
    from leasework.app.lock import Lock

EXIT_NOT_RUN, EXIT_NOT_FOUND = 126, 127
"""As of a shell."""
_FORWARDED = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)  # Windows has only two of them
)
_ENDING = {getattr(signal, name, None) for name in ("SIGTERM", "SIGINT", "SIGQUIT")}


class Runner:
    """One run. Signals go to the command; before it starts, they end the wait."""

    def __init__(self, app: App, name: str, command: tuple[str, ...], grace: float) -> None:
        self._app = app
        self._name = name
        self._command = command
        self._grace = grace
        self._process: Process | None = None
        self._signal: int | None = None
        self._told_to_end = False
        self._hung_up_at = float("-inf")
        """When the command was sent SIGHUP, which means "reload" to many, by the loop's clock."""

    async def run(self, wait: float | None, loser: int) -> int:
        """Run the command and return its exit status, or ``loser`` if another process has the
        lock."""
        me = asyncio.current_task()
        assert me
        loop = asyncio.get_running_loop()
        for number in _FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self._on_signal, number, me)
        if hasattr(signal, "SIGTSTP"):  # Ctrl-Z would stop the renewals, but not the command
            signal.signal(signal.SIGTSTP, lambda *_: None)  # which the command does not inherit
        lock = self._app.lock(self._name, cancel=False)
        try:
            try:
                won = await self._win(lock, wait)
                return await self._hold(lock) if won else loser
            finally:
                await lock.release()
        except asyncio.CancelledError:
            return 128 + (self._signal or 0)
        finally:
            await asyncio.to_thread(self._app.desk.close)
            await self._app.close()

    def _on_signal(self, number: int, me: asyncio.Task[Any]) -> None:
        from leasework.cli.work.supervisor import adopt_orphans

        if self._process is not None:
            if number in _ENDING and not self._told_to_end:
                self._told_to_end = True
                adopt_orphans()  # else those that end later might stay zombies of its group
            if number == getattr(signal, "SIGHUP", None):
                self._hung_up_at = asyncio.get_running_loop().time()
            _send(self._process, number)
        elif self._signal is None:
            self._signal = number
            me.cancel()

    async def _win(self, lock: Lock, wait: float | None) -> bool:
        from leasework.errors import LockNotAcquired

        won = False
        if wait is None:
            won = await lock.try_acquire(sure=True)
        else:
            with suppress(LockNotAcquired):
                await lock.acquire(timeout=wait)
                won = True
        if not won:
            self._say(f"{await self._holder()}; {self._command[0]} was not run")
        return won

    async def _holder(self) -> str:
        rows = await (await self._app.inspect()).locks(10_000)
        found = [r for r in rows if (r.name, r.mode, r.granted) == (self._name, "lock", True)]
        if not found:
            return "another process held it until just now"
        who, since = found[0].client or "a process that is gone", found[0].since
        # a row that was deleted by hand and created again has no such time
        return f"held by {who}" + (f" since {text(since)}" if since else "")

    async def _hold(self, lock: Lock) -> int:
        from leasework.jobs.process_child import die_with

        environ = {
            **os.environ,
            "LEASEWORK_LOCK": self._name,
            "LEASEWORK_LOCK_TOKEN": str(lock.token),
        }
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env=environ,
                # a background group that reads from the terminal is stopped
                stdin=asyncio.subprocess.DEVNULL if os.isatty(0) else None,
                process_group=0,
                preexec_fn=partial(die_with, os.getpid(), signal.SIGTERM),
            )
        except OSError as error:
            self._say(f"{self._command[0]} could not be started: {error.strerror}")
            return EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_RUN
        ended = asyncio.ensure_future(process.wait())
        lost = asyncio.ensure_future(lock.lost.wait())
        await asyncio.wait({ended, lost}, return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
        if lock.held:
            await self._end_the_rest(lock, process)
        if not lock.held:
            self._say(f"the lock was lost while {self._command[0]} was running; stopping it")
            await self._end(process, ended)
            return 1
        code = await ended
        return code if code >= 0 else 128 - code

    async def _end_the_rest(self, lock: Lock, process: Process) -> None:
        """If the command obeyed a signal, what it has started may obey later. The lock is kept for
        as long."""
        clock = asyncio.get_running_loop().time
        if not self._told_to_end and clock() - self._hung_up_at > self._grace:
            return
        give_up_at = clock() + self._grace
        while _group_lives(process.pid) and lock.held and clock() < give_up_at:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        if lock.held:
            _send(process, signal.SIGKILL)

    async def _end(self, process: Process, ended: asyncio.Future[int]) -> None:
        _send(process, signal.SIGTERM)
        await asyncio.wait({ended}, timeout=self._grace)
        _send(process, signal.SIGKILL)
        await ended

    def _say(self, what: str) -> None:
        click.echo(f"leasework: lock {self._name}: {what}", err=True)


def _group_lives(group: int) -> bool:
    from leasework.cli.work.supervisor import group_exists

    with suppress(ChildProcessError):  # orphans come to us
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    return group_exists(group)


def _send(process: Process, number: int) -> None:
    """Signal the command and all processes that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
