"""Judges the record of a whole run. Each check says how much it looked at."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.limits_fire.application import RECOVER_WITHIN
from tests.limits_fire.faults import Tally
from tests.limits_fire.record import Event, Settings, read_events

AHEAD_SECONDS = 0.05
"""A claim may come this long before its start."""
EARLY_SECONDS = 0.005
"""How much earlier than promised a handler may seem to start: two processes read the clock."""
SEEN_SECONDS = 0.2
"""A change is seen by every statement that begins this long after its commit."""


@dataclass
class Check:
    name: str
    looked_at: int
    found: list[str] = field(default_factory=list)
    least: int = 1
    """Fewer than this, and the check has shown nothing."""

    @property
    def ok(self) -> bool:
        return not self.found and self.looked_at >= self.least


class Record:
    def __init__(
        self, connection: psycopg.Connection[Any], tally: Tally, ledger: list[dict[str, Any]]
    ) -> None:
        self.events = read_events(connection)
        self.settings = Settings.read(connection)
        self.tally = tally
        self.ledger = ledger
        self.done = connection.execute(
            "select id::text, task_name, state, claim_token from leasework.job_done"
        ).fetchall()
        self.terms = [
            row[0]
            for row in connection.execute(
                "select extract(epoch from acquired_at)::float8 from leasework.term order by 1"
            ).fetchall()
        ]
        self.claims = [e for e in self.events if e.kind == "claim"]
        self.ends = {(e.job, e.token): e for e in self.events if e.kind == "end"}
        self.by_job: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            self.by_job[event.job].append(event)
        self._touched = sorted(tally.touched, key=lambda t: t.since)

    def touched(self, job: str, since: float, until: float) -> bool:
        return any(job in t.jobs for t in self._touched if t.since < until and t.until > since)


def concurrency(record: Record) -> Check:
    """F1: no claim makes more jobs of a key run than the limit of its moment."""
    check = Check("F1, each claim beside what ran", 0, least=200)
    at: dict[str, list[float]] = defaultdict(list)
    done: dict[str, list[float]] = defaultdict(list)
    for claim in record.claims:
        for key in claim.keys:
            at[key].append(claim.at)
            if end := record.ends.get((claim.job, claim.token)):
                done[key].append(end.done)
    for times in (*at.values(), *done.values()):
        times.sort()
    for claim in record.claims:
        for key in claim.keys:
            check.looked_at += 1
            runs = bisect_left(at[key], claim.at) + 1 - bisect_left(done[key], claim.at)
            most = record.settings.most(key, claim.claimed_at - SEEN_SECONDS, claim.at)
            if runs > most:
                check.found.append(f"{runs} of {key} at {claim.at:.4f}, the limit is {most:g}")
    return check


def rates(record: Record) -> list[Check]:
    """F2, charged by the claim, and by the start that follows it. A meter runs empty at the rate;
    what it shows after each claim is the most by which any window that ends there exceeds the rate
    times its length."""
    by_claim = Check("F2, the cost of claims in every window", 0, least=50)
    by_start = Check("F2, no start before its tokens are there", 0, least=50)
    starts = {(e["job"], e["token"]): e["at"] for e in record.ledger if e["what"] == "start"}
    by_key: dict[str, list[Event]] = defaultdict(list)
    for claim in record.claims:
        for key in claim.keys:
            by_key[key].append(claim)
    for key, claims in by_key.items():
        claims.sort(key=lambda c: (c.claimed_at, c.token or 0))
        meter, last, burst_before = 0.0, claims[0].claimed_at, 0.0
        for claim in claims:
            now = claim.claimed_at
            since = min(last, now) - SEEN_SECONDS
            if (found := record.settings.rates(key, since, claim.at)) is None:
                continue
            rate, burst = found
            if meter:  # another burst leaves in the bucket what is there, or less
                meter = max(0.0, meter + burst - burst_before)
            meter = max(0.0, meter - rate * max(0.0, now - last)) + claim.cost_of(key)
            last, burst_before = now, burst
            by_claim.looked_at += 1
            if meter > burst + rate * AHEAD_SECONDS + 0.01:
                by_claim.found.append(
                    f"{key} at {now:.4f}: {meter - burst:.2f} above the burst of {burst:g}, "
                    f"{rate:g} a second"
                )
            if started := starts.get((claim.job, claim.token or 0)):
                by_start.looked_at += 1
                by_then = meter - rate * (started - now)
                if by_then > burst + rate * EARLY_SECONDS + 0.01:
                    by_start.found.append(f"{key}: a job started {by_then - burst:.2f} too early")
    return [by_claim, by_start]


def closed(record: Record) -> list[Check]:
    """Nothing starts of a throttled key, and nothing of a paused queue."""
    throttled = Check("throttled keys, while they were closed", 0, least=1)
    paused = Check("paused queues", 0, least=1)
    for claim in record.claims:
        for key in claim.keys:
            until = record.settings.closed(key, claim.claimed_at)
            throttled.looked_at += until > 0
            if until > claim.claimed_at + 0.001:
                throttled.found.append(
                    f"{key} at {claim.claimed_at:.3f} is closed until {until:.3f}"
                )
        if claim.lane is not None:
            paused.looked_at += 1
            if record.settings.queue_paused(claim.queue, claim.claimed_at - SEEN_SECONDS, claim.at):
                paused.found.append(f"{claim.queue} at {claim.claimed_at:.3f}")
    return [throttled, paused]


@dataclass(slots=True)
class _Wait:
    job: str
    level: int
    seat: int
    since: float
    until: float = float("inf")


def order(record: Record) -> Check:
    """F4: a job is not overtaken in its lane."""
    check = Check("F4, the order in a lane", 0, least=100)
    waits: dict[tuple[str, str], list[_Wait]] = defaultdict(list)
    for job, events in record.by_job.items():
        waiting: _Wait | None = None
        for event in events:
            if waiting and event.kind in ("wait", "unwait", "claim", "drop"):
                waiting.until, waiting = event.at, None
            if event.kind == "wait" and event.keys and event.lane:
                waiting = _Wait(job, event.level, event.seat, event.done)
                waits[event.queue, event.lane].append(waiting)
    for claim in record.claims:
        if not claim.keys or claim.lane is None:
            continue
        check.looked_at += 1
        for wait in waits[claim.queue, claim.lane]:
            if (
                (wait.level, wait.seat) < (claim.level, claim.seat)
                and wait.since + SEEN_SECONDS < claim.claimed_at
                # those of the same statement are written within a moment
                and wait.until > claim.done
                and not record.touched(wait.job, claim.claimed_at - 0.3, claim.done + 0.1)
            ):
                check.found.append(
                    f"{claim.job} passed {wait.job} in {claim.lane} at {claim.at:.3f}"
                )
                break
    return check


def attempts(record: Record) -> list[Check]:
    """F4: waiting uses no attempt and keeps the place."""
    counted = Check("F4, attempts of each claim", 0, least=200)
    places = Check("F4, places of jobs that waited", 0, least=100)
    loose = Check("limited jobs outside of their lanes", len(record.events), least=200)
    for job, events in record.by_job.items():
        attempt, place = 0, None
        for event in events:
            if event.kind in ("loose", "stolen"):
                loose.found.append(f"{event.kind}: {job} of {event.lane} at {event.at:.3f}")
            if event.kind == "claim":
                counted.looked_at += 1
                if event.attempt != attempt + 1:
                    counted.found.append(f"{job}: attempt {event.attempt} after {attempt}")
            elif event.kind == "end" and event.attempt not in (attempt, attempt - 1):
                counted.found.append(f"{job}: an end made attempt {event.attempt} of {attempt}")
            elif event.kind == "wait":
                if event.attempt != attempt:
                    counted.found.append(f"{job}: waiting made {event.attempt} of {attempt}")
                if place is not None:
                    places.looked_at += 1
                    if place != (event.level, event.seat) and not record.touched(
                        job, event.at - 0.5, event.at + 0.5
                    ):
                        places.found.append(f"{job} lost its place at {event.at:.3f}")
            attempt = event.attempt
            place = (event.level, event.seat) if event.kind == "wait" else None
        places.looked_at += any(e.kind == "wait" for e in events)
    return [counted, places, loose]


def outcomes(record: Record, left: int) -> list[Check]:
    """Every job ended once, and as it should."""
    tally = record.tally
    ended = Check("every job ended once", len(tally.committed), least=100)
    if left:
        ended.found.append(f"{left} jobs have not ended")
    by_id = {row[0]: row for row in record.done}
    for job, times in Counter(row[0] for row in record.done).items():
        if times > 1:
            ended.found.append(f"{job} is {times} times in the history")
    for job in tally.committed.keys() - by_id.keys():
        ended.found.append(f"{job} ({tally.committed[job]}) is lost")
    for job in by_id.keys() & tally.rolled_back:
        ended.found.append(f"{job} was rolled back, and ran")
    right = Check("each ended as it should", len(by_id), least=100)
    ran = Counter((e["job"], e["token"]) for e in record.ledger if e["what"] == "end")
    begun = Counter((e["job"], e["token"]) for e in record.ledger if e["what"] == "start")
    for job, task, state, token in by_id.values():
        if state == "completed" and ran[job, token] != 1:
            right.found.append(f"{job} ({task}) completed, and ran {ran[job, token]} times")
        elif state == "cancelled" and job not in tally.cancel_asked:
            right.found.append(f"{job} ({task}) was cancelled by nobody")
        elif state not in ("completed", "cancelled"):
            right.found.append(f"{job} ({task}) is {state}")
    tokens = {(c.job, c.token) for c in record.claims}
    for run, times in begun.items():
        if times > 1:
            right.found.append(f"{run} started {times} times")
        if run not in tokens:
            right.found.append(f"{run} started without a claim")
    return [ended, right]


def rescues(record: Record) -> Check:
    """F3 after a crash: the claims of a killed worker end within recover_within, counted from the
    last change of the leader, which frees them."""
    check = Check("F3, claims of killed workers are freed", 0, least=1)
    for claim in record.claims:
        died = record.tally.deaths.get(claim.node or "")
        if died is None:
            continue
        end = record.ends.get((claim.job, claim.token))
        if end is None:
            check.found.append(f"{claim.job} was never freed")
        elif end.at > died and not record.touched(claim.job, died, end.at):
            check.looked_at += 1
            since = max([died, *(t for t in record.terms if t <= end.at)])
            if end.at - since > RECOVER_WITHIN + 1:
                check.found.append(f"{claim.job} was freed after {end.at - since:.1f} s")
    return check


def judge(record: Record, left: int) -> list[Check]:
    return [
        concurrency(record), *rates(record), *closed(record), order(record), *attempts(record),
        rescues(record), *outcomes(record, left),
    ]  # fmt: skip
