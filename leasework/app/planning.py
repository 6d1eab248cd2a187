"""What a node reads of an application's definitions when it starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict

from leasework.config import Limits, check_text
from leasework.duties.syncer import Planned
from leasework.errors import ConfigError, suggest
from leasework.jobs.tasks import Registry
from leasework.model.moments import is_number
from leasework.telemetry import logger


def checked_queues(
    queues: Mapping[str, int], used: Collection[str], limits: Limits
) -> dict[str, int]:
    """Check how many jobs of each queue run at once. Warn of a queue that is not among ``used``: it
    may be a typing error, or intended, because a job can name its own queue. Raises ConfigError."""
    most = limits.concurrency
    for queue, slots in queues.items():
        check_text("a queue's name", queue, limits.text_chars)
        if not is_number(slots, 1, most, whole=True):
            raise ConfigError(
                f"the number of slots of queue {queue!r} must be from 1 to {most}", got=slots
            )
    for queue in queues:
        if used and queue not in used:
            logger.warning(
                "no task uses the queue %r: it gets only jobs that name it themselves. %s",
                queue, suggest(queue, used),
            )  # fmt: skip
    return dict(queues)


def derived_release(registry: Registry, planned: Mapping[str, Planned]) -> str:
    """Return a digest of the tasks, their versions and options, and the schedules, for an
    application that names no release."""
    defined = {
        "known": registry.known(),
        "tasks": {
            task.name: [
                task.job_options.as_json,
                task.executor,
                asdict(task.options.backoff),
                [[limit.name, str(limit.names())] for limit in task.job_options.limits],
            ]
            for task in registry
        },
        "fair": {q: source for q, source in registry.fair.items() if isinstance(source, str)},
        "schedules": {
            name: [p.spec.to_json(), p.job_options(), p.missed, p.grace_seconds]
            for name, p in planned.items()
        },
    }
    text = json.dumps(defined, sort_keys=True)
    return "auto-" + hashlib.sha256(text.encode()).hexdigest()[:12]
