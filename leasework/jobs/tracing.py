"""OpenTelemetry: a span where jobs are enqueued, one for each attempt, and a link between them.
Without the extra ``otel``, or if the application sets up no SDK, this does nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from uuid import UUID

from leasework.model.job import ClaimedJob, JobRequest
from leasework.model.outcome import Cancel, Discard, Fail, Outcome

otel: Any = None
"""The API, or None if it is not installed."""
with suppress(ImportError):
    from opentelemetry import trace
    from opentelemetry.context import Context as OtelContext
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    otel = trace

_SYSTEM = {"messaging.system": "leasework"}
_set_up = False
"""An SDK was found. It cannot be removed."""


def traces() -> bool:
    """Return whether the application set up an SDK. Without one, a span costs as much as a short
    job, for nothing."""
    global _set_up
    if not _set_up and otel is not None:
        # the exact type: the API's own, which isinstance would examine as an abstract class
        _set_up = type(otel.get_tracer_provider()) is not otel.ProxyTracerProvider
    return _set_up


@contextmanager
def enqueueing(jobs: Sequence[tuple[UUID, JobRequest[Any]]]) -> Iterator[str | None]:
    """Open the span of one enqueueing call. It yields the ``traceparent`` for its jobs, or None if
    the span is not valid. Call it only while :func:`traces` is true."""
    job_id, first = jobs[0]
    attributes: dict[str, Any] = {
        **_SYSTEM,
        "messaging.operation.type": "send",
        "messaging.destination.name": first.queue,
        "leasework.task": first.task,
    }
    if len(jobs) == 1:
        attributes["messaging.message.id"] = str(job_id)
    else:
        attributes["messaging.batch.message_count"] = len(jobs)
    with otel.get_tracer("leasework").start_as_current_span(
        f"enqueue {first.task}", kind=otel.SpanKind.PRODUCER, attributes=attributes
    ) as span:
        carrier: dict[str, str] = {}
        if span.get_span_context().is_valid:
            TraceContextTextMapPropagator().inject(carrier)
        yield carrier.get("traceparent")


def _ended(span: Any, outcome: Outcome) -> None:
    span.set_attribute("leasework.outcome", type(outcome).__name__.lower())
    if isinstance(outcome, Fail):
        first = str(outcome.error).partition("\n")[0]
        span.set_status(otel.Status(otel.StatusCode.ERROR, first))
    elif isinstance(outcome, Cancel | Discard) and outcome.reason:
        span.set_attribute("leasework.reason", str(outcome.reason))


@contextmanager
def running(job: ClaimedJob, worker_id: str) -> Iterator[Callable[[Outcome], None]]:
    """Open the span of one attempt: the root of a trace, with a link to the enqueueing span. The
    handler's spans are its children. It yields what records how the attempt ended. Call it only
    while :func:`traces` is true."""
    links = []
    if job.trace:
        carrier = {"traceparent": job.trace}
        found = TraceContextTextMapPropagator().extract(carrier, OtelContext())
        came_from = otel.get_current_span(found).get_span_context()
        if came_from.is_valid:
            links.append(otel.Link(came_from))
    attributes: dict[str, Any] = {
        **_SYSTEM,
        "messaging.operation.type": "process",
        "messaging.destination.name": job.queue,
        "messaging.message.id": str(job.id),
        "leasework.task": job.task,
        "leasework.attempt": job.attempt,
        "leasework.worker_id": worker_id,
    }
    if job.schedule:
        attributes["leasework.schedule"] = job.schedule
    with otel.get_tracer("leasework").start_as_current_span(
        f"run {job.task}",
        context=OtelContext(),
        kind=otel.SpanKind.CONSUMER,
        attributes=attributes,
        links=links,
        record_exception=False,  # a handler's exception is an outcome
        set_status_on_exception=False,
    ) as span:
        yield partial(_ended, span)
