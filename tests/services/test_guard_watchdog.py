"""The watchdog: a process that hangs ends, one that was stopped goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.wait import until

START = """
import ctypes, time
from leasework.node.watchdog import Watchdog
dog = Watchdog(0.4, lambda kind, **fields: print(kind, fields))
"""
SECONDS = 1.0


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_process_that_holds_its_gil_in_c_is_killed(procs):
    hangs = "def in_c(): ctypes.PyDLL(None).sleep(60)\n"
    process = procs.start(code=f"{START}{hangs}dog.put_off({SECONDS})\nprint('armed')\nin_c()")
    process.wait_for("armed")
    assert process.wait() == -signal.SIGKILL


def test_a_process_that_puts_it_off_lives_on_also_after_a_stop(procs):
    beat = f"while True:\n    dog.put_off({3 * SECONDS})\n    time.sleep(0.05)\n    print('beat')"
    process = procs.start(code=START + beat)
    process.wait_for("beat")
    watcher = Path(f"/proc/{children(process.pid)[0]}/stat")
    process.stop()
    looked = ticks(watcher)
    until(lambda: ticks(watcher) > looked + 4, 20, "the watcher to look again and again")
    count = process.output.count("beat")
    process.resume()
    process.wait_for("beat", 60, count=count + round(4 * SECONDS / 0.05))


def ticks(stat: Path) -> int:
    """How often the process gave up the CPU to wait: once for each look."""
    status = stat.with_name("status").read_text()
    return int(status.partition("voluntary_ctxt_switches:")[2].split()[0])


def test_a_process_that_was_stopped_and_hangs_is_killed_too(procs):
    """Its Python never comes to put the watchdog off."""
    hang = f"dog.put_off({SECONDS})\nprint('armed')\nctypes.PyDLL(None).sleep(60)"
    process = procs.start(code=START + hang)
    process.wait_for("armed")
    process.stop()
    watcher = Path(f"/proc/{children(process.pid)[0]}/stat")
    looked = ticks(watcher)
    until(lambda: ticks(watcher) > looked + 4, 20, "the watcher to look again and again")
    assert process.running
    process.resume()
    assert process.wait() == -signal.SIGKILL


def test_called_off_it_does_nothing_and_ends_with_its_process(procs):
    late = f"dog.put_off({SECONDS})\ndog.call_off()\nprint('off')\ntime.sleep(2 * {SECONDS})\n"
    process = procs.start(code=f"{START}{late}print('late')\ntime.sleep(60)")
    process.wait_for("late")
    [watcher] = children(process.pid)
    process.kill()
    until(lambda: not Path(f"/proc/{watcher}").exists(), 10, "the end of the watcher")


def test_a_watcher_that_was_killed_is_started_again(procs):
    code = f"dog.put_off(60)\nprint('armed')\ninput_ = time.sleep({SECONDS})\n"
    again = f"dog.put_off({SECONDS})\nprint('again')\nctypes.PyDLL(None).sleep(60)"
    process = procs.start(code=START + code + again)
    process.wait_for("armed")
    until(lambda: children(process.pid), 10, "a watcher")
    os.kill(int(children(process.pid)[0]), signal.SIGKILL)
    process.wait_for("again")
    assert process.wait() == -signal.SIGKILL
