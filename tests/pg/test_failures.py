"""Failures: the fingerprint of each failed attempt, the groups, and the filters that find jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from leasework import App
from leasework.model.filter import parse
from leasework.model.fingerprint import fingerprint
from leasework.model.job import ClaimedJob
from leasework.model.outcome import Decision
from leasework.model.states import State
from leasework.store.jobs import AckItem
from leasework.tuning import Tuning
from tests.pg.bench import Bench

REFUSED = "ConnectionError: host {} refused"
STORED = "select outcome, error, fingerprint from leasework.attempt order by claim_token"


async def fail(bench: Bench, job: ClaimedJob, error: str, state: State = State.DISCARDED) -> None:
    decision = Decision(state, 3600.0, error=error)
    await bench.store.ack(bench.node, [AckItem(job.id, job.claim_token, decision, 0.1)], None)


async def failed(bench: Bench, error: str, **options: Any) -> UUID:
    """A new job that failed for good."""
    job = await bench.claimed(**options)
    await fail(bench, job, error)
    return job.id


async def found(app: App, text: str) -> list[UUID]:
    return [job.id for job in await (await app.reports()).jobs(parse(text), 100)]


async def test_every_attempt_that_failed_has_the_fingerprint_of_its_error(
    bench: Bench, sql: Any
) -> None:
    await failed(bench, REFUSED.format("db-1"))
    await fail(bench, await bench.claimed(), REFUSED.format("'b c'"), State.RETRYABLE)
    await bench.store.requeue((await bench.claimed(requeue_after=5)).id, 0)
    for seconds in (5, None):
        taken = await bench.claimed(requeue_after=seconds)
        await bench.store.requeue(taken.id, taken.claim_token)
        await bench.store.cancel_many([taken.id], "", None)
    await bench.claimed()
    await sql("delete from leasework.node")
    assert await bench.store.rescue([bench.node], 3, 100, None)
    rows = await sql(STORED)
    assert {row[0] for row in rows} == {"discarded", "retryable", "requeued", "crashed"}
    assert [row[2] for row in rows] == [fingerprint(row[1]) for row in rows]
    assert len({row[2] for row in rows}) == 4, "the two of hosts have the same"


async def test_what_did_not_fail_has_no_fingerprint(bench: Bench, sql: Any) -> None:
    for state, why in ((State.SCHEDULED, "snoozed"), (State.CANCELLED, None)):
        job = await bench.claimed()
        decision = Decision(state, 60.0, error="no", counts=False, held_because=why)
        await bench.store.ack(bench.node, [AckItem(job.id, job.claim_token, decision, 0)], None)
    await bench.ack(await bench.claimed())
    assert [row[0::2] for row in await sql(STORED)] == [("snoozed", None), ("cancelled", None)]


async def test_failures_are_grouped_and_counted(app: App, bench: Bench, sql: Any) -> None:
    jobs = [await failed(bench, REFUSED.format(n)) for n in range(3)]
    again = await bench.claimed(task="u")
    await fail(bench, again, REFUSED.format("x9"), State.RETRYABLE)
    other = await failed(bench, "ValueError: no")
    operator = await app.operator("ann", "test")
    [many, one] = await operator.failures()
    assert (many.pattern, many.attempts, many.jobs, many.more) == (
        "ConnectionError: host … refused", 4, 4, False,
    )  # fmt: skip
    assert (many.open, many.looked, many.tasks) == (4, 4, ["t", "u"])
    assert many.newest_job == again.id and many.newest_error == REFUSED.format("x9")
    assert many.trend == [0] * (Tuning.trend_bars - 1) + [4]
    assert (one.pattern, one.attempts, one.newest_job) == ("ValueError: no", 1, other)
    await bench.store.retry_many(jobs, None, "discarded")
    assert (await operator.failures())[0].open == 1, "those that run again are not failed now"
    first = "update leasework.attempt set ended_at = now() - interval '{}' where job_id = %s"
    await sql(first.format("5 hours"), [jobs[0]])
    await sql(first.format("2 days"), [jobs[1]])
    [many, _] = await operator.failures()
    assert (many.attempts, many.trend[9], many.trend[11]) == (3, 1, 2)
    assert datetime.now(UTC) - many.first_at > timedelta(days=1), "as far back as there are any"


async def test_counting_stops_and_says_so(app: App, bench: Bench) -> None:
    for n in range(7):
        await failed(bench, REFUSED.format(n))
    for error in ("ValueError: no", "KeyError: 'x'"):
        await failed(bench, error)
    reports = await app.reports()
    groups = await reports.failure_groups(60.0, 10, most=9)
    assert [(g.attempts, g.more) for g in groups] == [(7, True), (1, False), (1, False)]
    groups = await reports.failure_groups(60.0, 10, most=3)
    assert [(g.attempts, g.more) for g in groups] == [(1, True)] * 3
    groups = await reports.failure_groups(60.0, 10, distinct=6)
    assert [(g.jobs, g.more_jobs) for g in groups] == [(6, True), (1, False), (1, False)]
    assert len(await reports.failure_groups(60.0, 10, kinds=2)) == 2
    assert len(await reports.failure_groups(60.0, 1)) == 1
    assert [g.looked for g in await reports.failure_groups(60.0, 10, looked=6)] == [2, 1, 1]


async def test_a_fingerprint_finds_the_jobs_whose_last_failure_it_is(
    app: App, bench: Bench, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tuning, "page_bad_rows", 2)
    refused, wrong = fingerprint(REFUSED.format(1)), fingerprint("ValueError: no")
    jobs = [await failed(bench, REFUSED.format(n)) for n in range(5)]
    changed = await bench.claimed()
    await fail(bench, changed, REFUSED.format(7), State.RETRYABLE)
    await sql(
        "update leasework.job set ready = true, held_because = null where id = %s", [changed.id]
    )
    [claimed] = await bench.claim()
    await fail(bench, claimed, "ValueError: no", State.RETRYABLE)
    for _ in range(5):
        await bench.enqueue()
    assert await found(app, f"error:{refused}") == jobs[::-1]
    assert await found(app, f"error:{refused} state:retryable") == []
    assert await found(app, f"error:{refused} -state:discarded") == []
    assert await found(app, f"error:{wrong}") == [changed.id]
    assert await found(app, f"error:{wrong} state:retryable -task:u") == [changed.id]
    assert await found(app, f"-error:{refused} state:discarded") == []
    past = "update leasework.attempt set ended_at = now() - interval '3 hours' where job_id = %s"
    await sql(past, [jobs[0]])
    assert await found(app, f"error:{refused} since:1h") == jobs[:0:-1]
    assert await found(app, f"error:{refused} until:1h") == jobs[:1]
    operator = await app.operator("ann", "test")
    wanted = parse(f"state:discarded error:{refused} since:1h")
    assert await operator.preview(wanted, "retry") == (4, False)
    assert (await operator.bulk("retry", wanted, "these")).changed == 4
    assert await bench.state(jobs[0]) == "discarded" and await bench.state(jobs[1]) == "available"
    wanted = parse(f"error:{wrong}")
    assert (await operator.bulk("discard", wanted, "these")).changed == 1


async def test_filters_in_words(app: App, bench: Bench, sql: Any) -> None:
    broken = await failed(bench, "ValueError: 50% of\nthe ROWS", task="send.mail", tags=("vip",))
    request = await bench.enqueue(task="send.sms", queue="q*", payload='{"who": "kim_1"}')
    plain = await bench.enqueue(task="sendXmail")
    await sql("update leasework.job set schedule = 'nightly' where id = %s", [plain])
    every = [plain, request, broken]
    for text, jobs in {
        "task:send.*": [request, broken],
        "task:*mail -task:send.mail": [plain],
        "-task:send*": [],
        "-queue:default": [request],
        'queue:"q*"': [request],
        "-tag:v*": [plain, request],
        "tag:*i*": [broken],
        "args.who:kim_1": [request],
        "args.who:kim_*": [request],
        "args.who:*x*": [],
        "-args.who:kim_1": [plain, broken],
        "schedule:night*": [plain],
        "-schedule:nightly": [request, broken],
        "error:rows": [broken],
        "error:50%": [broken],
        "error:5*rows state:discarded": [broken],
        "-error:rows": [plain, request],
        "-state:discarded": [plain, request],
        "-state:available -state:discarded": [],
        "since:1h": every,
        "until:1h": [],
        f"since:{datetime.now(UTC).isoformat()}": [],
        "until:2090-01-01": every,
    }.items():
        assert set(await found(app, text)) == set(jobs), text


async def test_since_is_about_the_last_change(app: App, bench: Bench, sql: Any) -> None:
    job = await bench.enqueue()
    past = "update leasework.job set created_at = now() - interval '3 hours' where id = %s"
    await sql(past, [job])
    assert await found(app, "since:1h") == await found(app, "state:available since:1h") == []
    assert await found(app, "until:1h") == [job]
    [claimed] = await bench.claim()
    assert await found(app, "since:1h") == await found(app, "state:running since:1h") == [job]
    await fail(bench, claimed, "no")
    assert await found(app, "since:1h state:discarded") == await found(app, "since:1h") == [job]
    days = "update leasework.job_done set finished_at = now() - interval '2 days'"
    await sql(days)
    assert await found(app, "since:1h state:discarded") == await found(app, "since:1h") == []
    assert await found(app, "since:3d state:discarded") == await found(app, "since:3d") == [job]


async def test_a_search_goes_on_to_the_end_if_it_is_asked_to(
    app: App, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tuning, "step_rows", 2)
    rare = await bench.enqueue(payload='{"who": "kim"}')
    for _ in range(7):
        await bench.enqueue()
    reports = await app.reports()
    reports._seconds = 0.0
    wanted = parse("args.who:kim")
    assert [job.id for job in await reports.jobs(wanted, 5, to_the_end=True)] == [rare]
    assert await reports.jobs(parse("args.who:nobody"), 5, to_the_end=True) == []


async def test_a_state_that_is_excluded_is_not_acted_on(app: App, bench: Bench, sql: Any) -> None:
    job, waits = await failed(bench, "no"), await bench.enqueue()
    await sql("update leasework.job_done set state = 'quarantined'")
    operator = await app.operator("ann", "test")
    assert (await operator.bulk("discard", parse("-state:quarantined"), "")).changed == 1
    assert await bench.state(job) == "quarantined" and await bench.state(waits) == "discarded"
    assert (await operator.bulk("discard", parse("task:t"), "")).changed == 1
