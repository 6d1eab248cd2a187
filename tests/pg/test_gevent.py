"""app.sync in a process that gevent has patched."""

from __future__ import annotations

from typing import Any

_CODE = """
from gevent import monkey
monkey.patch_all()

import gevent
from leasehold import App

app = App()

@app.task
async def hello() -> None: ...

jobs = [app.sync.enqueue(hello.job()) for _ in range(3)]
greenlets = [gevent.spawn(app.sync.enqueue, hello.job()) for _ in range(3)]
jobs += [greenlet.get() for greenlet in greenlets]
assert len({app.sync.get(job.id).id for job in jobs}) == 6
print("done")
"""


def test_every_call_of_app_sync_works_in_greenlets(migrated: str, procs: Any):
    process = procs.start(code=_CODE, env={"LEASEHOLD_DSN": migrated})
    process.wait_for("done", 60)
