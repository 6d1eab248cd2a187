"""Explains why a job does not run: a pure function from what was read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leasework.model.job import JobRecord, needs
from leasework.model.moments import duration
from leasework.model.states import State
from leasework.store.durable import StepView
from leasework.store.limits import KeyWait, PauseView
from leasework.store.rows import JobDetail, NodeView

MOST_AHEAD = 1000
"""The count of jobs ahead stops here."""


def why_waiting(
    job: JobRecord,
    more: JobDetail | None,
    nodes: list[NodeView],
    keys: Sequence[KeyWait] = (),
    pauses: Sequence[PauseView] = (),
    steps: Sequence[StepView] = (),
) -> list[str]:
    """The reasons as sentences, the deciding one first; empty for a running or finished job.
    ``more``: from ``Reports.job``. ``nodes``: the live ones. ``keys``: from ``Reports.key_waits``.
    ``steps``: those of the job.
    """
    if more is None or job.state not in (State.AVAILABLE, State.SCHEDULED, State.RETRYABLE):
        return []
    working = [node for node in nodes if node.executes]
    if job.state is State.AVAILABLE:
        paused = [
            f"{pause}."
            for pause in pauses
            if (pause.kind, pause.name) in (("queue", job.queue), ("task", job.task_name))
        ]
        return [*paused, *_limited(keys), *_available(job, more, working, limited=bool(keys))]
    if job.held_because in ("sleep", "event", "gather"):
        return [_waits(step, more) for step in steps if step.open] or ["It resumes now."]
    return list(_later(job, more, working, nodes))


def _waits(step: StepView, more: JobDetail) -> str:
    until = f", at most until {step.until:%Y-%m-%d %H:%M:%S %Z}" if step.until else ""
    if step.kind == "event":
        return f"It waits for the signal of its step {step.name!r}{until}."
    if step.kind == "gather":
        return f"It waits for the jobs of its step {step.name!r}."
    left = _when((step.until - more.now).total_seconds()) if step.until else "now"
    return f"Its handler sleeps in the step {step.name!r}; it continues {left}."


def _limited(keys: Sequence[KeyWait]) -> Iterator[str]:
    for row in keys:
        name, _, key = row.key.partition(":")
        limit = f"the limit {name!r}" + (f", key {key!r}" if key else "")
        if not row.key:
            yield f"It waits for its tenant's share, with {row.ahead:,} of its tenant before it."
        elif not row.defined:
            yield f"No application has defined {limit}: it waits until one does."
        elif row.paused:
            yield f"A person has paused {limit}."
        elif (row.closed_seconds or 0.0) > 0:
            yield f"A job was throttled: {limit} opens in {duration(row.closed_seconds or 0.0)}."
        elif row.concurrency is not None and row.running >= row.concurrency:
            yield f"It waits for {limit}: {row.running:,} of {row.concurrency:,} run."
        elif (row.opens_in or 0.0) > 0:
            pause = duration(row.opens_in or 0.0)
            yield f"It waits for {limit}, whose rate allows the next in {pause}."
        else:
            yield f"It has room in {limit}."
    if keys and keys[0].key and keys[0].ahead:
        ahead = keys[0].ahead
        come = "job with the same limits and keys comes" if ahead == 1 else "jobs with them come"
        yield f"{ahead:,} {come} before it."


def _available(
    job: JobRecord, more: JobDetail, nodes: list[NodeView], *, limited: bool
) -> Iterator[str]:
    workers = [node for node in nodes if job.queue in node.queues]
    if not workers:
        yield f"No live node works the queue {job.queue!r}."
    knowing = [n for n in workers if needs(job.task_name, more.version) in n.tasks]
    if workers and not knowing:
        yield f"No live node that works this queue knows the task {job.task_name!r}."
    ahead = more.ahead
    slots = sum(int(node.queues[job.queue]) for node in workers)
    if ahead:
        count = f"{ahead:,}" + (" or more" if ahead >= MOST_AHEAD else "")
        come = "job of this queue comes" if ahead == 1 else "jobs of this queue come"
        yield f"{count} {come} before it."
    if slots:
        working = "1 live node works" if len(workers) == 1 else f"{len(workers)} live nodes work"
        yield f"{working} this queue, up to {slots} job{'' if slots == 1 else 's'} at once."
    if job.crashes:
        yield "Its worker died while it ran: it waits until it can run alone."
    if knowing and not ahead and not job.crashes and not limited:
        yield "It is next: a worker takes it as soon as a slot is free."


def _later(
    job: JobRecord, more: JobDetail, working: list[NodeView], nodes: list[NodeView]
) -> Iterator[str]:
    due, now = more.run_at, more.now
    left = (due - now).total_seconds()
    if job.held_because == "unknown_task":
        yield f"It was claimed by a node that does not know the task {job.task_name!r}."
        if not any(needs(job.task_name, more.version) in node.tasks for node in working):
            yield "No live node knows it: start a worker of a release that defines it."
    elif job.held_because == "unknown_version":
        yield f"The worker that took it cannot run it: {job.last_error}."
        needed = needs(job.task_name, more.version)
        if any(needed in node.tasks for node in working):
            yield f"It is retried {_when(left)}, by a worker of any release."
        else:
            yield "No live node knows this version: start a worker of a release that has it."
    elif job.state is State.RETRYABLE:
        tries = f"Attempt {job.attempt} of {job.max_attempts + job.crashes}"
        yield f"{tries} failed; it is retried {_when(left)}."
    else:
        words = _HELD.get(job.held_because or "", "It was scheduled for later: it is due {when}.")
        yield words.format(when=_when(left))
    if left < -5 and not any((node.info or {}).get("leads") for node in nodes):
        yield "No live node leads: nobody makes due jobs available."


_HELD = {
    "no_process": "The worker that took it could not start it; it is retried {when}.",
    "not_alone": "It must run alone, because workers died while it ran. The worker that took it "
    "had other jobs that did not end; it is retried {when}.",
    "stopped": "Its worker stopped while it ran; a worker takes it next.",
    "unreadable": "The worker that took it could not read its arguments; it is retried {when}.",
    "throttled": "It was throttled; it is tried again {when}.",
    "snoozed": "Its handler snoozed it; it continues {when}.",
}


def _when(seconds: float) -> str:
    if seconds <= 0:
        return f"now (it was due {duration(-seconds)} ago)"
    return f"in {duration(seconds)}"
