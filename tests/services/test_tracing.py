"""OpenTelemetry: the attempt's span has a link to where its job was enqueued; SDK and workers are
real."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from leasework import App, Context, Discard
from tests.support.procs import Processes
from tests.support.requests import job_request
from tests.support.wait import until_async

EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module")
def provider() -> TracerProvider:
    """One a process: OpenTelemetry takes no second."""
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(made)
    return made


@pytest.fixture
def spans(provider: TracerProvider) -> Iterator[Any]:
    EXPORTER.clear()
    yield lambda name: [s for s in EXPORTER.get_finished_spans() if s.name == name]


async def test_each_attempt_has_a_span_with_a_link_to_its_enqueueing(dsn: str, spans: Any):
    app = App(dsn)
    await app.apply_schema()
    inside: list[str] = []

    def note() -> None:
        with trace.get_tracer("user").start_as_current_span("work") as span:
            inside.append(format(span.get_span_context().trace_id, "032x"))

    @app.task(max_attempts=2, name="flaky")
    async def flaky(ctx: Context) -> None:
        note()
        if ctx.attempt == 1:
            raise LookupError("not yet")

    @app.task(name="plain")
    def plain() -> None:
        note()

    @app.task(name="given_up")
    async def given_up() -> Discard:
        return Discard("no use")

    with trace.get_tracer("user").start_as_current_span("request") as request:
        job = await flaky.enqueue()
        await app.enqueue_many([plain.job(), plain.job()])
        await given_up.enqueue()
    async with app.node():
        await until_async(lambda: _done(spans, "run flaky", 1), 30)
        await app.retry(job.id)
        for name, count in (("run flaky", 2), ("run plain", 2), ("run given_up", 1)):
            await until_async(lambda n=name, c=count: _done(spans, n, c), 30)
    await app.close()
    [one] = spans("enqueue flaky")
    [many] = spans("enqueue plain")
    assert one.parent.span_id == request.get_span_context().span_id
    assert one.attributes["messaging.message.id"] == str(job.id)
    assert many.attributes["messaging.batch.message_count"] == 2
    for name, source in (("flaky", one), ("plain", many)):
        for span in spans(f"run {name}"):
            [link] = span.links
            assert link.context.span_id == source.context.span_id
            assert link.context.trace_id == source.context.trace_id
            assert span.parent is None and span.context.trace_id != source.context.trace_id
            assert format(span.context.trace_id, "032x") in inside, "the handler's are children"
    first, second = sorted(spans("run flaky"), key=lambda s: s.attributes["leasework.attempt"])
    assert first.status.status_code is trace.StatusCode.ERROR
    assert first.status.description == "LookupError: not yet"
    assert second.status.status_code is trace.StatusCode.UNSET
    assert spans("run given_up")[0].attributes["leasework.outcome"] == "discard"


async def _done(spans: Any, name: str, count: int) -> bool:
    return len(spans(name)) >= count


WORKER = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from leasework import App

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)
app = App()

@app.task(name="there")
async def there() -> None: ...
"""


@pytest.mark.parametrize("broken", ["on_start", "on_end"])
async def test_a_processor_that_fails_fails_no_job(
    dsn: str, provider: TracerProvider, monkeypatch: pytest.MonkeyPatch, broken: str
):
    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("tenant")

    app = App(dsn)
    await app.apply_schema()
    runs = []

    @app.task(name="once", max_attempts=2)
    async def once() -> str:
        runs.append(1)
        return "done"

    job = await once.enqueue()
    monkeypatch.setattr(provider._active_span_processor, broken, fail)
    async with app.node():
        assert await job.wait(30) == "done"
    assert len(runs) == 1
    await app.close()


async def test_the_trace_goes_with_the_job_to_a_worker_of_another_process(
    dsn: str, spans: Any, tmp_path: Path, procs: Processes
):
    (tmp_path / "traced_app.py").write_text(WORKER)
    app = App(dsn)
    await app.apply_schema()
    worker = procs.start(
        "-m", "leasework", "worker", "traced_app:app",
        env={"LEASEWORK_DSN": dsn, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip

    @app.task(name="there")
    async def there() -> None: ...

    await there.enqueue()
    await app.close()
    [sent] = spans("enqueue there")
    wanted = f'"span_id": "0x{sent.context.span_id:016x}"'
    await asyncio.to_thread(worker.wait_for, re.escape(wanted), 60)
    printed = worker.output
    assert '"name": "run there"' in printed
    assert f"0x{sent.context.trace_id:032x}" in printed


async def test_what_is_not_sampled_is_not_sampled_at_the_run(dsn: str, spans: Any):
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    app = App(dsn)
    await app.apply_schema()
    off = TracerProvider(sampler=ALWAYS_OFF).get_tracer("user")
    with off.start_as_current_span("unsampled"):
        await app.enqueue(job_request())
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute("select trace from leasework.job")
        [(carried,)] = await cursor.fetchall()
    assert int(carried[-2:], 16) & 1 == 0, "the parent decided: not sampled, and so it is told on"
    assert not spans("enqueue t")
    await app.close()


async def test_sql_may_give_a_trace_and_a_wrong_one_is_refused(dsn: str):
    app = App(dsn)
    await app.apply_schema()
    good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        text = json.dumps({"task": "t", "trace": good})
        await connection.execute("select leasework.enqueue(%s)", [text])
        for wrong in ("x", good.upper(), 7):
            text = json.dumps({"task": "t", "trace": wrong})
            with pytest.raises(psycopg.Error, match="trace must be a traceparent"):
                await connection.execute("select leasework.enqueue(%s)", [text])
        cursor = await connection.execute("select trace from leasework.job")
        assert await cursor.fetchall() == [(good,)]
    await app.close()


def test_without_an_sdk_nobody_traces_and_an_attempt_makes_no_span():
    """In a process of its own: what this one has set up stays."""
    code = """
from opentelemetry import trace
from leasework.jobs import tracing
assert tracing.otel is trace and not tracing.traces()
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
assert tracing.traces()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
