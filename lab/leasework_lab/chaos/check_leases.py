"""Checks of leases: which process believed what and when, and how long nobody led."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from leasework.config import Timings
from leasework_lab.chaos.history import Campaign, Fault, Line, Process
from leasework_lab.chaos.tables import Tables

_INSTANT = 0.005
"""Allowed between two readings of one clock in the same step."""
_RESUMED = 0.25
"""Allowed after a SIGCONT for a step that was in progress when the process was stopped."""
SLACK_SECONDS = 1.5
"""How much a busy machine may add to a bound."""
_BEATS = 2.5
"""In renewal intervals: a node with longer gaps between its renewals was not well."""
_HIT_BY = frozenset({"pause", "hole", "lost answers", "delay", "reset", "half-open"})


@dataclass(frozen=True)
class Span:
    """From ``start`` to ``end``, ``process`` held ``token``."""

    start: float
    end: float
    process: Process
    token: int
    me: str = ""
    why: str = ""
    """Why it ended; empty: at its deadline, or with its process."""


def beliefs(process: Process, of: str) -> list[Span]:
    """A process's beliefs about its leases: from each acquisition to the last deadline that it set
    itself, or to the moment when it stepped down."""
    spans: list[Span] = []
    open_: dict[tuple[str, int], tuple[float, float]] = {}
    for line in process.of("gained", "renewed", "down"):
        if line["of"] != of:
            continue
        key = (line["me"], line["token"])
        if line["kind"] == "gained":
            open_[key] = (line["at"], line["until"])
        elif line["kind"] == "renewed" and key in open_:
            open_[key] = (open_[key][0], line["until"])
        elif line["kind"] == "down" and key in open_:
            start, _ = open_.pop(key)
            spans.append(Span(start, line["until"], process, key[1], key[0], line["why"]))
    for (me, token), (start, until) in open_.items():
        # killed: a dead process believes nothing
        end = min(until, process.ended_at) if process.ended_at else until
        spans.append(Span(start, end, process, token, me))
    return sorted(spans, key=lambda span: span.start)


def leaderships(campaign: Campaign) -> list[Span]:
    """Leaderships of all processes, by the deadlines that they recorded."""
    return sorted(
        (span for process in campaign.nodes() for span in beliefs(process, "leader")),
        key=lambda span: span.start,
    )


def _acted(campaign: Campaign) -> list[Span]:
    return [
        Span(line["since"], line["until"], process, line["token"])
        for process in campaign.nodes()
        for line in process.of("believed")
    ]


def believers(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """No two processes' beliefs overlap, neither in their records nor in what they answered."""
    spans = sorted([*leaderships(campaign), *_acted(campaign)], key=lambda span: span.start)
    latest: dict[int, Span] = {}  # by process, the span that ends last
    for span in spans:
        yield 1
        for other in latest.values():
            together = min(other.end, span.end) - span.start
            if other.process is not span.process and together > 0:
                yield (
                    f"{other.process} in term {other.token} and {span.process} in term "
                    f"{span.token} both led for {together:.2f} s at {span.start:.2f}"
                )
        before = latest.get(span.process.pid)
        if before is None or span.end > before.end:
            latest[span.process.pid] = span


def terms(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """Each term has one process. Terms grow with each acquisition, a job's claim tokens with each
    start, and each claim runs once."""
    last = 0
    holder: dict[int, Process] = {}
    for span in leaderships(campaign):
        yield 1
        if holder.setdefault(span.token, span.process) is not span.process:
            yield f"{holder[span.token]} and {span.process} both had term {span.token}"
        if span.token <= last:
            yield f"term {span.token} was acquired by {span.process} after term {last}"
        last = max(last, span.token)
    known = {token for _, token, _ in tables.terms}
    for token in holder:
        if token not in known:
            yield f"term {token} of {holder[token]} has no row"
    yield from _rows_grow(campaign)
    for job, starts in _starts(campaign).items():
        yield len(starts)
        highest = 0
        for line, process in starts:
            if line["token"] <= highest and not _just_resumed(campaign, process, line["at"]):
                yield f"{process} started job {job} as claim {line['token']}, after {highest}"
            highest = max(highest, line["token"])


def _rows_grow(campaign: Campaign) -> Iterator[str | int]:
    """The leader's row, as the campaign observed it: its term never goes back, and never belongs to
    two nodes."""
    last, holder = 0, None
    for row in campaign.rows:
        yield 1
        if row["token"] < last:
            yield f"the leader's row went back from term {last} to {row['token']}"
        if row["token"] > last:
            holder = None
        if row["node"] is not None:
            if holder not in (None, row["node"]):
                yield f"the leader's row gave term {row['token']} to {holder} and to {row['node']}"
            holder = row["node"]
        last = max(last, row["token"])


def _starts(campaign: Campaign) -> dict[str, list[tuple[Line, Process]]]:
    """Each job's starts, in order of time."""
    starts: dict[str, list[tuple[Line, Process]]] = defaultdict(list)
    for process in campaign.nodes():
        for line in process.of("start"):
            starts[line["job"]].append((line, process))
    for lines in starts.values():
        lines.sort(key=lambda pair: pair[0]["at"])
    return starts


def _just_resumed(campaign: Campaign, process: Process, at: float) -> bool:
    """Was it stopped between the check of its lease and the first line of the handler?"""
    return any(
        fault.kind == "pause" and fault.target == process.name and 0 <= at - fault.end < _RESUMED
        for fault in campaign.faults
    )


def steps_down(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """A handler starts only while its node's lease is valid."""
    for process in campaign.nodes():
        held: dict[str, list[Span]] = defaultdict(list)
        for span in beliefs(process, "node"):
            held[span.me].append(span)
        for line in process.of("start"):
            yield 1
            at = line["at"]
            inside = any(s.start <= at <= s.end + _INSTANT for s in held[line["node"]])
            if not inside and not _just_resumed(campaign, process, at):
                yield f"{process} started {line['ref']} at {at:.3f} without a lease"


def overlaps(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """A later run of a job begins during an earlier one only if the earlier one's node no longer
    has a lease."""
    ends = {
        (line["job"], line["token"]): line["at"]
        for process in campaign.nodes()
        for line in process.of("end")
    }
    held = {span.me: span for process in campaign.nodes() for span in beliefs(process, "node")}
    for job, starts in _starts(campaign).items():
        for (line, process), (later, other) in itertools.pairwise(starts):
            yield 1
            end = ends.get((job, line["token"]), process.ended_at or campaign.ended_at)
            lease = held.get(line["node"])
            if later["at"] >= end or lease is None:
                continue
            if later["at"] < lease.end:
                yield (
                    f"{line['ref']} began on {other} while it ran on {process}, whose lease was "
                    f"valid for {lease.end - later['at']:.2f} s more"
                )
            elif lease.why == "stopped" and line["task"] != "stubborn":
                yield f"{line['ref']} began on {other} while it ran on {process}, which had left"


# -- gaps ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Gap:
    """A time without a leader. ``waited``: the longest time for which a well process stood by and
    could have taken over. ``by``: that process."""

    start: float
    end: float
    waited: float
    by: str


def gaps(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """No well process waits longer than F without a leader or a change of the leader's row."""
    for gap in leaderless(campaign, timings):
        yield 1
        if gap.waited > timings.failover + SLACK_SECONDS:
            yield (
                f"nobody led from {gap.start:.2f} for {gap.end - gap.start:.2f} s; {gap.by} was "
                f"well for {gap.waited:.2f} s of it, and F is {timings.failover:.2f} s"
            )


def leaderless(campaign: Campaign, timings: Timings) -> list[Gap]:
    """All times without a leader, from the first leader until the nodes are told to stop."""
    spans = leaderships(campaign) if campaign.own_tasks else _by_rows(campaign, timings)
    end = campaign.stopping_at
    found: list[Gap] = []
    until = None
    for span in [*spans, None]:
        start = span.start if span else end
        if until is not None and start > until:
            waited, by = _stood_by(campaign, timings, until, min(start, end))
            found.append(Gap(until, start, waited, by))
        if span:
            until = max(until or 0.0, span.end)
    return found


def _by_rows(campaign: Campaign, timings: Timings) -> list[Span]:
    """A user's processes write no history: leadership is what the row says, for no longer than a
    renewal is trusted."""
    nobody = Process("", "node", 0, 0.0)
    rows = campaign.rows
    nexts = [row["at"] for row in rows[1:]] + [campaign.stopping_at]
    return [
        Span(row["at"], min(at, row["at"] + timings.trust), nobody, row["token"])
        for row, at in zip(rows, nexts, strict=False)  # without rows, nobody ever led
        if row["node"] is not None
    ]


def _stood_by(campaign: Campaign, timings: Timings, start: float, end: float) -> tuple[float, str]:
    """The longest time within a gap in which one process was well and saw nothing that restarts a
    candidate's wait."""
    anew = [at for at in _waits_begin(campaign, timings, start) if start < at < end]
    best = (0.0, "nobody")
    for process in campaign.nodes():
        for low, high in well(campaign, process, timings):
            edges = [max(low, start), *[at for at in anew if low < at < high], min(high, end)]
            for one, two in itertools.pairwise(edges):
                best = max(best, (two - one, str(process)))
    return best


def _waits_begin(campaign: Campaign, timings: Timings, start: float) -> Iterator[float]:
    """Moments when candidates restart their wait: another holder or term. A renewal counts only if
    it may come from before the gap: a holder that keeps renewing without leading is a gap."""
    who: tuple[str | None, int] | None = None
    for row in campaign.rows:
        at, before, who = row["at"], who, (row["node"], row["token"])
        if who != before or at <= start + timings.trust or _was_held_back(campaign, timings, row):
            yield at


def _was_held_back(campaign: Campaign, timings: Timings, row: Line) -> bool:
    """Did this row's change come out of a network hole that has just ended?"""
    holders = [process for process in campaign.nodes() if process.pid == row.get("pid")]
    return any(
        hurts(fault, holder) and 0 <= row["at"] - fault.end <= timings.renew
        for holder in holders
        for fault in campaign.faults
    )


def well(campaign: Campaign, process: Process, timings: Timings) -> list[tuple[float, float]]:
    """The times when a process renewed its own lease on time and no fault hit it."""
    if not campaign.own_tasks:
        return _untouched(campaign, process, timings)
    beats = [
        span_line["at"]
        for span_line in process.of("gained", "renewed")
        if span_line["of"] == "node"
    ]
    hurt = sorted(
        ((f.start, f.end) for f in campaign.faults if hurts(f, process)), key=lambda pair: pair[0]
    )
    stopping = next((line["at"] for line in process.of("stopping")), float("inf"))
    spans: list[tuple[float, float]] = []
    for before, after in itertools.pairwise(beats):
        calm = not any(low < after and before < high for low, high in hurt)
        if not calm or after - before > _BEATS * timings.renew or after > stopping:
            continue
        if spans and spans[-1][1] == before:
            spans[-1] = (spans[-1][0], after)
        else:
            spans.append((before, after))
    return spans


def _untouched(campaign: Campaign, process: Process, timings: Timings) -> list[tuple[float, float]]:
    """The times when no fault had hit it for a lease, which it may need to notice, rejoin or start.
    Nothing more is known about a user's process, which writes no history."""
    since = process.started_at + timings.lease
    spans = []
    for fault in sorted(campaign.faults, key=lambda fault: fault.start):
        if hurts(fault, process) or (fault.target == process.name and fault.kind == "restart"):
            if fault.start > since:
                spans.append((since, fault.start))
            since = max(since, fault.end + timings.lease)
    end = process.ended_at or campaign.ended_at
    return [*spans, (since, end)] if end > since else spans


def renewals(campaign: Campaign, tables: Tables, timings: Timings) -> Iterator[str | int]:
    """An undisturbed node renews its own lease before its trust ends."""
    longest = timings.trust + SLACK_SECONDS
    for process in campaign.nodes():
        lines = process.of("gained", "renewed", "stopping")
        beats = [line["at"] for line in lines if line.get("of", "node") == "node"]
        if not any(process.of("stopping")):
            beats.append(process.ended_at or campaign.ended_at)
        calm = _untouched(campaign, process, timings)
        for before, after in itertools.pairwise(beats):
            yield 1
            for low, high in calm:
                alone = min(high, after) - max(low, before)
                if alone > longest:
                    yield f"{process} was undisturbed for {alone:.2f} s but did not renew its lease"


def hurts(fault: Fault, process: Process) -> bool:
    """Does the fault keep this process from doing its work?"""
    if fault.target == process.name:
        return fault.kind in _HIT_BY
    return fault.kind in ("frozen", "crash")
