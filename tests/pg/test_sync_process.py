"""app.sync and its leaders and locks over what happens to a process: threads that cannot start,
forks, gevent, and the exit."""

from __future__ import annotations

from typing import Any

import pytest

_FIRST_THREAD_FAILS = """
import threading
from leasework import App

app = App()
start = threading.Thread.start

def fails(thread):
    threading.Thread.start = start
    raise RuntimeError("can't start new thread")

threading.Thread.start = fails
for what in (app.sync.jobs, app.sync.lock("x").acquire):
    threading.Thread.start = fails
    try:
        what()
    except RuntimeError as error:
        print("refused:", error)
    print("then:", what())
print("done")
"""

_FIRST_CALLS_AT_ONCE = """
import threading
from leasework import App

app, jobs = App(), []
calls = [threading.Thread(target=lambda: jobs.append(app.sync.jobs())) for _ in range(8)]
for call in calls:
    call.start()
for call in calls:
    call.join()
loops = [t for t in threading.enumerate() if t.name == "leasework-sync"]
for thread in loops[1:]:
    thread.join(0.5)
print(len(jobs), sum(thread.is_alive() for thread in loops))
"""

_PRELOADED = """
from leasework import App
app = App()  # before gevent patches the locks, as with gunicorn --preload

from gevent import monkey
monkey.patch_all()
import gevent

calls = [gevent.spawn(app.sync.jobs) for _ in range(5)]
calls += [gevent.spawn(app.sync.lock(f"x{n}").try_acquire) for n in range(5)]
gevent.joinall(calls, raise_error=True)
print("done")
"""

_FORKED_IN_THE_BLOCK = """
import os, sys
from leasework import App

app = App(call_timeout=300)  # if the child waited for an answer, it would be as long
with app.sync.{what} as held:
    {ready}
    pid = os.fork()
    if pid:
        print("child:", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        print("still held:", {held})
sys.exit(0 if pid else 7)
"""

_AT_EXIT = """
import atexit
from leasework import App
from leasework.integrations.background import BackgroundNode

app = App()
node = BackgroundNode(app)
node.start()
assert app.sync.jobs() == []
atexit.register(app.sync.close)
atexit.register(node.stop)
atexit.register(print, "leaving")
"""


@pytest.fixture
def run(migrated: str, procs: Any) -> Any:
    def run(code: str) -> str:
        process = procs.start(code=code, env={"LEASEWORK_DSN": migrated})
        assert process.wait(60) == 0
        return process.output

    return run


def test_a_thread_that_cannot_start_fails_one_call_and_not_the_next_ones(run: Any):
    output = run(_FIRST_THREAD_FAILS)
    assert output.count("refused: can't start new thread") == 2
    assert "then: []" in output and "then: None" in output and "done" in output


def test_first_calls_of_many_threads_leave_one_loop(run: Any):
    assert "8 1" in run(_FIRST_CALLS_AT_ONCE)


def test_greenlets_that_call_first_at_once_block_nobody_also_after_a_preload(run: Any):
    assert "done" in run(_PRELOADED)


@pytest.mark.parametrize(
    ("what", "ready", "held"),
    [
        ("leader('x')", "assert held.wait(30)", "held.is_leader"),
        ("lock('x')", "", "held.held"),
    ],
)
def test_the_child_of_a_fork_leaves_the_block_and_the_parent_keeps_what_it_holds(
    run: Any, what: str, ready: str, held: str
):
    output = run(_FORKED_IN_THE_BLOCK.format(what=what, ready=ready, held=held))
    assert "child: 7" in output and "still held: True" in output, output


def test_node_and_connections_can_be_closed_at_the_exit_of_the_process(run: Any, sql: Any):
    output = run(_AT_EXIT)
    assert "leaving" in output and "Traceback" not in output and "Error" not in output, output
