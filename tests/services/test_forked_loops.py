"""The child of a fork takes nothing that its parent's event loop has to hear."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORKS = """
import asyncio, os, socket, sys, threading
import uvloop
from leasework import own_tasks

async def forks(meanwhile) -> None:
    go_on, may_go_on = os.pipe()
    pid = os.fork()
    if not pid:
        os.read(go_on, 1)
        return  # to the loop, which looks at its sockets once more
    waker = threading.Thread(target=meanwhile)
    waker.start()
    waker.join()
    os.write(may_go_on, b".")
    os.waitpid(pid, 0)  # so the child is the first to look

async def woken_by_a_thread(loop) -> None:
    await asyncio.create_task(forks(lambda: loop.call_soon_threadsafe(bool)))
    told, late = loop.create_future(), []
    loop.call_later(20, late.append, "late")
    waker = threading.Timer(0.1, lambda: loop.call_soon_threadsafe(told.set_result, None))
    waker.start()
    await told
    print(*late or ["in time"])

async def told_by_a_socket(loop) -> None:
    here, there = socket.socketpair()
    here.setblocking(False)
    heard = loop.create_future()
    loop.add_reader(here, lambda: heard.set_result(here.recv(100)))
    await asyncio.create_task(forks(lambda: there.send(b"in time")))
    async with asyncio.timeout(20):
        print((await heard).decode())

async def main() -> None:
    own_tasks.works_here()
    await globals()[sys.argv[1]](asyncio.get_running_loop())

loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
with asyncio.Runner(loop_factory=loops[sys.argv[2]]) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("what", ["woken_by_a_thread", "told_by_a_socket"])
def test_the_child_of_a_fork_takes_nothing_from_its_parents_loop(what: str, loop: str) -> None:
    command = [sys.executable, "-c", FORKS, what, loop]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.stdout.strip(), done.returncode) == ("in time", 0), done.stderr
