"""Jobs to enqueue, without a task."""

from __future__ import annotations

from typing import Any

from leasework.model.job import JobRequest


def job_request(
    task: str = "t", payload: str = "{}", *, trace: str | None = None, **options: Any
) -> JobRequest[Any]:
    """A job of ``task``. ``options`` are fields of JobOptions."""
    return JobRequest.named(task, payload, **options).traced(trace)
