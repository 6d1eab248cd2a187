"""Checks of jobs and queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leasework.config import (
    DISCARDED_SHARE,
    FAILED_FEWEST,
    FAILED_SHARE,
    HANG_SECONDS,
    HANG_TIMES,
    SLOW_TIMES,
    STOPPED_RUNS,
    TROUBLE_SECONDS,
)
from leasework.errors import error_line, suggest
from leasework.model.job import needed
from leasework.model.moments import duration
from leasework.watch.checks.registry import (
    Said,
    check,
    count,
    lately,
    listed,
    seconds_of,
    since,
)
from leasework.watch.facts import Facts


@check(
    "Jobs of a task were discarded within the last ten minutes: at least "
    f"{DISCARDED_SHARE:.0%} of its jobs that finished in that time. For a task with fewer than a "
    "hundred jobs in ten minutes, that is every discarded job.",
    "leasework jobs --state discarded --task {task}; to run a job and its effects again: "
    "leasework jobs retry ID",
    page="jobs?q=state:discarded", shared=True, explains=("schedule_failing",),
)  # fmt: skip
def _jobs_discarded(facts: Facts) -> Iterator[str | Said]:
    for row in facts.failures:
        finished = max(row.finished, row.discarded)
        if row.discarded and row.discarded >= DISCARDED_SHARE * finished:
            yield Said(
                f"Jobs of the task {row.task!r} are discarded: {row.discarded:,} of "
                f"{finished:,} that finished within {duration(TROUBLE_SECONDS)}."
                + (f" The newest error: {error_line(row.error)}" if row.error else ""),
                subject=f"task:{row.task}",
            )


@check(
    f"At least {FAILED_FEWEST} attempts of a task failed within the last ten minutes and will be "
    f"retried, and they are at least {FAILED_SHARE:.0%} of all its attempts in that time.",
    "leasework jobs --state retryable --task {task} shows the errors",
    page="jobs?q=state:retryable", shared=True, explains=("schedule_failing",),
)  # fmt: skip
def _jobs_failing(facts: Facts) -> Iterator[str | Said]:
    for row in facts.failures:
        attempts = row.failed + max(row.finished, row.discarded)
        if row.failed >= FAILED_FEWEST and row.failed >= FAILED_SHARE * attempts:
            yield Said(
                f"Attempts of the task {row.task!r} fail and are retried: "
                f"{row.failed:,} of {attempts:,} within {duration(TROUBLE_SECONDS)}. "
                f"The newest error: {error_line(row.error)}",
                subject=f"task:{row.task}",
            )


@check(
    "Jobs are in quarantine: the worker of each died max_crashes times while it ran (3 by "
    "default).",
    "leasework jobs --state quarantined; once fixed: leasework jobs retry ID",
    page="jobs?q=state:quarantined", shared=True,
)  # fmt: skip
def _job_quarantined(facts: Facts) -> Iterator[str | Said]:
    if facts.summary.quarantined:
        jobs = count(facts.summary.quarantined)
        tasks = listed(facts.summary.quarantined_tasks) or "?"
        yield f"{jobs} in quarantine ({tasks}): a worker died each time that it ran them"


@check(
    f"The last {STOPPED_RUNS} runs of a job were all interrupted by a stop of their worker, as in "
    "a deployment.",
    "Raise the grace (LEASEWORK_GRACE), or split the job into shorter ones; to end one: "
    "leasework jobs cancel {job}",
    page="jobs?q=state:running", shared=True,
)  # fmt: skip
def _job_interrupted(facts: Facts) -> Iterator[str | Said]:
    for row in facts.interrupted:
        yield Said(
            f"Every stop of a worker interrupts jobs of the task {row.task!r}, because they run "
            f"longer than the grace of {duration(facts.grace)}: {row.jobs:,} of them in their last "
            f"{STOPPED_RUNS} runs, the longest for {duration(row.longest_seconds)}",
            {"job": row.job},
            subject=f"task:{row.task}",
        )


@check(
    "Jobs run for far longer than usual: for more than "
    f"{HANG_SECONDS:g} seconds, and {HANG_TIMES:g} times as long as 99 % of their task's runs of "
    "the last day.",
    "What it does now: leasework jobs stack {job}; to end it: leasework jobs cancel {job}. If its "
    "handler is in a thread and does not stop, take the job away: leasework jobs requeue {job}",
    page="jobs?q=state:running", explains=("queue_overdue", "job_overdue", "task_slow"),
)  # fmt: skip
def _job_hangs(facts: Facts) -> Iterator[str | Said]:
    longest = {pace.task: pace.longest for pace in facts.pace}
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for node in facts.live_nodes:
        for job in (node.info or {}).get("long") or ():
            usual = longest.get(job["task"])
            if usual is not None and job["seconds"] > max(HANG_SECONDS, HANG_TIMES * usual):
                found.setdefault((job["queue"], job["task"]), []).append(job)
    for (queue, task), jobs in sorted(found.items()):
        slots = sum(n.queues.get(queue, 0) for n in facts.live_nodes if n.executes)
        many, oldest = sum(job["jobs"] for job in jobs), max(jobs, key=lambda job: job["seconds"])
        yield Said(
            f"{many} of the {slots:,} slots of the queue {queue!r} hang: the task {task!r} usually "
            f"takes at most {duration(longest[task])}, and a job of it has been running for "
            f"{duration(oldest['seconds'])}",
            {"job": oldest["id"]},
            subject=f"queue:{queue}",
            seconds=oldest["seconds"],
        )


@check(
    f"The median run of a task in the last ten minutes was {SLOW_TIMES:g} times that of the last "
    "day, and more than a second.",
    "Look at what it calls. leasework jobs --where 'task:{task}' lists its jobs",
    page="now", shared=True,
)  # fmt: skip
def _task_slow(facts: Facts) -> Iterator[str | Said]:
    for pace in facts.pace:
        if pace.lately and pace.lately > max(1.0, SLOW_TIMES * pace.usual):
            yield Said(
                f"The task {pace.task!r} is slow: its runs of the last ten minutes took "
                f"{duration(pace.lately)} (median), and usually take {duration(pace.usual)}",
                subject=f"task:{pace.task}",
            )


@check(
    "A job has been running for longer than its timeout, or for more than an hour if it has none.",
    "leasework jobs cancel {job}, or give its task requeue_after=…",
    page="jobs?q=state:running",
)  # fmt: skip
def _job_overdue(facts: Facts) -> Iterator[str | Said]:
    for node in facts.nodes:
        listed = (node.info or {}).get("overdue")
        for job in listed if isinstance(listed, list) else []:
            if isinstance(job, dict):
                limit = job.get("timeout")
                allowed = f"its timeout is {seconds_of(limit)}" if limit else "it has no timeout"
                yield Said(
                    f"Job {job.get('id')} ({job.get('task')}) has been running for "
                    f"{seconds_of(job.get('seconds'))} on {node.worker_id}, and {allowed}",
                    subject=f"job:{job.get('id')}",
                )


@check(
    "Jobs run on a node that does not exist, and nothing leads the rescuer to them: rows were "
    "changed by hand (the nodes truncated, the priority of a running job updated, or rows of "
    "claimed_to or death deleted).",
    "The leader finds them when it walks over all jobs, usually within a minute, and then they run "
    "again. If they stay, check that there is a leader: leasework leaders",
    page="jobs?q=state:running", shared=True,
)  # fmt: skip
def _jobs_stranded(facts: Facts) -> Iterator[str | Said]:
    if facts.summary.stranded:
        yield f"{count(facts.summary.stranded)} running on a node that does not exist"


@check(
    "Jobs are held back because no live node knows their task, or its version.",
    "Start a worker of a release that defines it; the jobs then run by themselves. If the name is "
    "wrong: leasework jobs cancel ID",
    page="jobs?q=state:scheduled", shared=True, explains=("batch_stuck", "breach_unhandled"),
)  # fmt: skip
def _task_unknown(facts: Facts) -> Iterator[str | Said]:
    if facts.summary.unknown:
        unknown = facts.summary.unknown_tasks
        known = {needed(task)[0] for node in facts.live_nodes for task in node.tasks}
        wrong = [name for name in unknown if needed(name)[0] not in known]  # not only its version
        near = (f" ({hint})" for name in wrong if (hint := suggest(name, known)).startswith("Did"))
        jobs, names = count(facts.summary.unknown), listed(unknown) or "?"
        yield f"{jobs} held back because no live node knows the task: {names}{next(near, '')}"


@check(
    "A worker could not read a job's arguments within the last ten minutes. The job is held back.",
    "It is tried again every five minutes. If no worker will ever be able to read it: "
    "leasework jobs cancel {job}",
    page="events?kind=job_unreadable",
)  # fmt: skip
def _job_unreadable(facts: Facts) -> Iterator[str | Said]:
    for task, events in lately(facts, "job_unreadable", "task"):
        job, error = (events[-1].fields.get(name) for name in ("job", "error"))
        jobs = {event.fields.get("job") for event in events}
        one = f"Job {job} of task {task!r} is"
        who = one if len(jobs) == 1 else f"{len(jobs):,} jobs of task {task!r} are"
        yield Said(
            f"{who} held back: {error} ({since(facts, events[-1])} ago)",
            {"job": job},
            subject=f"task:{task}",
        )


def _worked(facts: Facts) -> set[str]:
    return {queue for node in facts.live_nodes if node.executes for queue in node.queues}


@check(
    "A queue has available jobs, but no live node runs them.",
    "Start a worker (leasework worker MODULE:APP, flask leasework worker, or manage.py "
    "leasework_worker) with --queue {queue}=10 beside its other queues",
    page="now#queues", shared=True, alert="critical", alert_after="10s",  # as no_live_node
)  # fmt: skip
def _queue_unworked(facts: Facts) -> Iterator[str | Said]:
    limited = {row.queue for row in facts.limited}
    oldest = {row.queue: row.oldest_seconds for row in facts.queues if row.available}
    for queue in sorted({*oldest, *limited} - _worked(facts)):
        words = f"Queue {queue!r} has available jobs, but no live node runs them"
        yield Said(words, subject=f"queue:{queue}", seconds=oldest.get(queue))


@check(
    "A job of a queue that live nodes work has been due for longer than overdue_seconds (60 by "
    "default) and waits for a free slot.",
    "Add workers or slots (--queue {queue}=SLOTS), or see what the running jobs do. If such a wait "
    "is normal here, raise LEASEWORK_OVERDUE_SECONDS",
    page="now#queues", shared=True,
)  # fmt: skip
def _queue_overdue(facts: Facts) -> Iterator[str | Said]:
    unknown = facts.summary.unknown_tasks
    worked = _worked(facts)
    for row in facts.queues:
        queue, seconds = row.queue, row.oldest_seconds or 0.0
        if row.available and seconds > facts.overdue_seconds and queue in worked:
            yield Said(
                f"Queue {queue!r} is overdue: its oldest job has waited for {duration(seconds)}",
                # of such a task, only the first jobs are held back; workers leave the others alone
                do=f"Start a worker that knows {listed(unknown)}, or if the jobs are of other "
                "tasks, add workers or slots"
                if unknown
                else None,
                subject=f"queue:{queue}",
                seconds=seconds - facts.overdue_seconds,
            )
