"""One worker process of the demo: ``leasehold worker``, which ends with its parent."""

from __future__ import annotations

import sys

from leasehold.cli.work.worker import run_worker
from leasehold_lab.demo.app import QUEUES
from leasehold_lab.orphan import end_with_parent


def main() -> None:
    end_with_parent()
    sys.exit(run_worker("leasehold_lab.demo.app:make_app", {}, QUEUES, execute=True))
