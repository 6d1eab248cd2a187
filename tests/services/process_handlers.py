"""Handlers for tests/services/test_process_executor.py: what a child process imports."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from leasework import Cancel, Discard, Snooze
from leasework.errors import LostClaim


def pid() -> int:
    return os.getpid()


def add(a: int, b: int) -> int:
    return a + b


async def add_async(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


def nothing() -> None:
    return None


def snooze() -> Snooze:
    return Snooze(42.5)


async def cancel() -> Cancel:
    return Cancel("not wanted")


def discard() -> Discard:
    return Discard("hopeless")


def fail() -> None:
    raise LookupError("there is no such \ud800 thing\x00")


async def fail_async() -> None:
    await asyncio.sleep(0)
    raise LookupError("neither here")


def leave(code: int) -> None:
    sys.exit(code)


def vanish(code: int) -> None:
    os._exit(code)


def crash(number: int) -> None:
    os.kill(os.getpid(), number)
    signal.pause()


def hang(file: str) -> None:
    """Says its pid, and is deaf to all but SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _say(file, str(os.getpid()))
    while True:
        signal.pause()


def start_program(file: str, ends: bool = False) -> None:
    """Says the pid of a program that it starts, which outlives it unless somebody kills it."""
    program = subprocess.Popen(["sleep", "600"])
    _say(file, str(program.pid))
    if ends:
        os._exit(3)
    program.wait()


def stay(file: str) -> str:
    """Says its pid, and returns when the file is removed."""
    _say(file, str(os.getpid()))
    while Path(file).exists():
        time.sleep(0.01)
    return "finished"


def end_others() -> list[int]:
    """Starts a program and forks processes. How SIGTERM ends them, even at their first moment."""
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    return sorted({program.wait(), *(_end_copy() for _ in range(50))})


def end_copy_with_handler() -> int:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    return _end_copy()


def _end_copy() -> int:
    copy = os.fork()
    if not copy:
        signal.alarm(60)
        while True:
            signal.pause()
    os.kill(copy, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])


async def hang_async(file: str) -> None:
    _say(file, str(os.getpid()))
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


def _say(file: str, text: str) -> None:
    if file == "stdout":
        print(f"child {text}", flush=True)
        return
    Path(file + ".part").write_text(text)
    Path(file + ".part").rename(file)


def noisy() -> str:
    print("printed by a handler", "x" * 100_000)
    os.write(1, b"written by a handler\n")
    assert sys.stdin.read() == ""
    return "quiet"


def text_of(count: int) -> str:
    return 'é"\n' * count


def not_json() -> object:
    return object()


def endless_reason() -> Discard:
    return Discard("x" * 20_000_000)


def close_everything() -> None:
    os.closerange(3, 256)
    signal.pause()


def fork_and_vanish(file: str, leaves: bool) -> None:
    """A copy of the child holds the socket open after its death."""
    if os.fork():
        while not Path(file).exists():
            time.sleep(0.01)
        os._exit(3)
    if leaves:
        os.setsid()
    _say(file, str(os.getpid()))
    signal.alarm(300)
    signal.pause()


INTERRUPTED = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


def where() -> dict[str, Any]:
    return {
        "cwd": os.getcwd(),
        "path": sys.path,
        "argv": sys.argv[1:],
        "variable": os.environ.get("A_VARIABLE"),
        "sigint": os.kill(os.getpid(), signal.SIGINT) or "ignored here",
        "programs": subprocess.run([sys.executable, "-c", INTERRUPTED], check=False).returncode,
    }


def facts(ctx: Any) -> dict[str, Any]:
    ctx.log.warning("a line")
    return {
        "job": str(ctx.job_id),
        "token": ctx.token,
        "attempt": ctx.attempt,
        "scheduled_for": ctx.scheduled_for.isoformat(),
        "schedule": ctx.schedule,
        "cancelled": ctx.cancelled,
        "worker": ctx.worker_id,
    }


def report(ctx: Any, shares: list[float]) -> str:
    for share in shares:
        ctx.progress(share, f"at {share}")
    return "done"


async def report_async(ctx: Any, shares: list[float]) -> str:
    await asyncio.gather(*(ctx.progress(share, f"at {share}") for share in shares))
    return "done"


def report_and_hang(ctx: Any, file: str) -> None:
    _say(file, str(os.getpid()))
    ctx.progress(0.5)
    signal.pause()


def without_app(ctx: Any, file: str) -> None:
    ctx.assert_mine(file)


go = threading.Event()
heard: list[str] = []
left: list[threading.Thread] = []


def leave_a_thread(ctx: Any) -> None:
    def speak() -> None:
        go.wait(60)
        try:
            ctx.progress(0.5)
            heard.append("nothing")
        except LostClaim:
            heard.append("LostClaim")

    left.append(threading.Thread(target=speak, daemon=True))
    left[0].start()


def hear_the_thread() -> list[str]:
    go.set()
    left[0].join(30)
    return heard


def shadowed() -> str:
    return "first"


first = shadowed


def shadowed() -> str:  # type: ignore[no-redef]
    return "second"
