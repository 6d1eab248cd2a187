"""One worker process of the demo: ``leasework worker``, which ends with its parent."""

from __future__ import annotations

from leasework.cli.work.worker import run_worker
from leasework_lab.demo.app import QUEUES
from leasework_lab.orphan import end_with_parent


def main() -> None:
    end_with_parent()
    run_worker("leasework_lab.demo.app:make_app", {}, QUEUES, execute=True)
