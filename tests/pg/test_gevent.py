"""app.sync in a process that gevent has patched."""

from __future__ import annotations

from typing import Any

import pytest

_CODE = """
from gevent import monkey
monkey.patch_all()

import gevent
from leasework import App

app = App()

@app.task
async def hello() -> None: ...

jobs = [app.sync.enqueue(hello.job()) for _ in range(3)]
greenlets = [gevent.spawn(app.sync.enqueue, hello.job()) for _ in range(3)]
jobs += [greenlet.get() for greenlet in greenlets]
assert len({app.sync.get(job.id).id for job in jobs}) == 6
print("done")
"""

_HELD = """
from gevent import monkey
monkey.patch_all()

import gevent
from leasework import App

app = App()

def locks(token):
    with app.sync.lock("nightly", timeout=30) as lock:
        assert lock.held and app.sync.jobs() == []
        return lock.token

if {first}:
    assert app.sync.jobs() == []
greenlets = [gevent.spawn(locks, n) for n in range(3)]
assert len({{greenlet.get() for greenlet in greenlets}}) == 3

with app.sync.leader("engine") as lead:
    assert lead.wait(30) == 1 and lead.is_leader
    assert app.sync.jobs() == []
    with app.sync.advisory_lock("books"):
        pass

with app.sync.lock("nightly") as lock:
    gevent.spawn(app.desk.close).join()
    assert lock.lost.wait_in_thread(30)
    try:
        lock.token
    except Exception as error:
        print(type(error).__name__)
"""


def test_every_call_of_app_sync_works_in_greenlets(migrated: str, procs: Any):
    process = procs.start(code=_CODE, env={"LEASEWORK_DSN": migrated})
    process.wait_for("done", 60)


@pytest.mark.parametrize("first", [True, False])
def test_leaders_and_locks_work_in_greenlets(migrated: str, procs: Any, first: bool):
    process = procs.start(code=_HELD.format(first=first), env={"LEASEWORK_DSN": migrated})
    process.wait_for("LostLease", 60)
