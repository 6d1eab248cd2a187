"""One worker process of the demo: ``leasehold worker``, which ends when its parent is gone."""

from __future__ import annotations

import os
import sys
import threading

from leasehold.cli.demo.app import QUEUES
from leasehold.cli.worker import run_worker

EXIT_ORPHAN = 70


def main() -> None:
    threading.Thread(target=_end_with_parent, name="demo-parent", daemon=True).start()
    sys.exit(run_worker("leasehold.cli.demo.app:make_app", {}, QUEUES, execute=True))


def _end_with_parent() -> None:
    """The parent holds the other end of our stdin for as long as it lives, and its server with
    it: there is nothing left to stop in good order."""
    while os.read(0, 1):
        pass
    os._exit(EXIT_ORPHAN)
