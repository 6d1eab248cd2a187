"""Counts how much a run has shown. Below its minimums, a run proves nothing and is void."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, fields

from leasework_lab.chaos.history import Campaign
from leasework_lab.chaos.tables import Tables

GATE_SECONDS = 260.0
"""Seconds of faults that the gate's minimums are meant for."""


@dataclass
class Counts:
    """Figures of one run, or the sum of several."""

    faults: int = 0
    acknowledged: int = 0
    terms: int = 0
    unknown: int = 0
    """Enqueues whose outcome is unknown."""
    recovered: int = 0
    """Those of them that turned out to have succeeded."""
    stale: int = 0
    """Completions that came after the claim was taken away, and changed nothing."""
    fenced: int = 0
    """Duties that the fence kept from committing."""
    runs: int = 0
    ticks: int = 0
    effects: int = 0
    duties: int = 0
    seconds: float = 0.0
    """Seconds with faults."""

    def __add__(self, other: Counts) -> Counts:
        names = [f.name for f in fields(self)]
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def to_json(self) -> dict[str, float]:
        return asdict(self)


GATE = Counts(
    faults=150, acknowledged=15_000, terms=25, unknown=50, stale=20, fenced=5, seconds=GATE_SECONDS
)
SOAK = Counts(
    faults=2_000, acknowledged=200_000, terms=300, unknown=667, stale=267, fenced=67, seconds=3250.0
)
_SHOWN = {
    "faults": "faults",
    "acknowledged": "acknowledged enqueues",
    "terms": "terms",
    "unknown": "unknown outcomes",
    "stale": "stale completions",
    "fenced": "fenced duties",
}
_OF_PROFILE = {
    "process": ("faults", "acknowledged", "terms", "stale"),
    "network": ("faults", "acknowledged", "terms", "unknown"),
    "database": ("faults", "acknowledged", "unknown"),
    "all": ("faults", "acknowledged", "terms", "unknown"),
    "none": ("acknowledged",),
}
_OF_TARGET = ("faults", "terms")


def count(campaign: Campaign, tables: Tables | None) -> Counts:
    """The figures of one run."""
    kinds = Counter(line["kind"] for process in campaign.nodes() for line in process.lines)
    events = Counter(line["event"] for p in campaign.nodes() for line in p.of("event"))
    refs = Counter[str]()
    unknown: set[str] = set()
    for process in campaign.producers():
        for line in process.of("ack", "unknown"):
            refs[line["kind"]] += len(line["refs"])
            if line["kind"] == "unknown":
                unknown.update(line["refs"])
    found = {job.ref for job in tables.jobs} if tables else set()
    return Counts(
        faults=sum(fault.counted for fault in campaign.faults),
        acknowledged=refs["ack"],
        terms=len(_terms(campaign, tables)),
        unknown=refs["unknown"],
        recovered=len(unknown & found),
        stale=events["ack_refused"] + kinds["complete_refused"],
        fenced=kinds["duty_fenced"],
        runs=kinds["start"],
        ticks=sum(tick.state == "fired" for tick in tables.ticks) if tables else 0,
        effects=len(tables.effects) if tables else 0,
        duties=len(tables.duties) if tables else 0,
        seconds=campaign.healed_at - campaign.began_at if campaign.profile != "none" else 0.0,
    )


def _terms(campaign: Campaign, tables: Tables | None) -> set[tuple[str, int]]:
    """The terms of this campaign, without older ones in a user's database."""
    workers = {process.pid for process in campaign.nodes()}
    every = tables.terms if tables else []
    return {(name, token) for name, token, worker in every if _pid(worker) in workers}


def _pid(worker_id: str) -> int:
    parts = worker_id.split(":")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0


def missing(counts: Counts, minimum: Counts) -> list[str]:
    """What is below the minimum, in words; empty if the run counts."""
    return [
        f"{getattr(counts, name):,} {words}, but at least {getattr(minimum, name):,} are needed"
        for name, words in _SHOWN.items()
        if getattr(counts, name) < getattr(minimum, name)
    ]


def missing_of_one(counts: Counts, profile: str, seconds: float, own_tasks: bool) -> list[str]:
    """The same for a single run: its share of the gate's minimums that its profile can reach."""
    share = seconds / GATE_SECONDS
    shown = _OF_PROFILE[profile]
    if not own_tasks:
        shown = tuple(name for name in shown if name in _OF_TARGET)
    scaled = Counts(**{name: int(getattr(GATE, name) * share) for name in shown})
    return missing(counts, scaled)
