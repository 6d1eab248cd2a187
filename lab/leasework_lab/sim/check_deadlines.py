"""DeadlineOnce: each deadline goes from armed to met, breached or cancelled, once. Each breach has
one callback job, nothing else has one, and nothing that is past due stays armed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from leasework.store.deadlines import Swept
from leasework_lab.sim.rows import DeadlineRow, SimDatabase

OVERDUE = timedelta(seconds=8)
"""A follower's sweep comes within this time."""
Wrong = Callable[[str], None]


@dataclass
class Promises:
    """What the sweeps decided, observed at the server, even if the answer was lost."""

    breached: Counter[UUID] = field(default_factory=Counter)
    callbacks: set[UUID] = field(default_factory=set)
    closed: dict[UUID, str] = field(default_factory=dict)
    """Met or cancelled deadlines, with the verdict that was seen first."""

    def ended(self, db: SimDatabase, deadline: UUID) -> None:
        """Its job has ended, or somebody ended it: the verdict that it has now is final."""
        row = db.deadlines.get(deadline)
        if row and row.state in ("met", "cancelled"):
            self.closed.setdefault(deadline, row.state)

    def swept(self, answer: Swept, wrong: Wrong) -> None:
        for breach in answer.breaches:
            self.breached[breach.id] += 1
            self.callbacks.add(breach.callback_job)
            if self.breached[breach.id] > 1:
                wrong(f"DeadlineOnce: {breach.id} was breached again")
            if verdict := self.closed.get(breach.id):
                wrong(f"DeadlineOnce: {breach.id} was {verdict} and is now breached")

    def last_look(self, db: SimDatabase, wrong: Wrong) -> None:
        """Check the tables at the end."""
        jobs = [*db.jobs.values(), *(done.job for done in db.done.values())]
        told = Counter(
            str(job.payload["breach"]["deadline"])
            for job in jobs
            if job.task == PAGE and job.payload
        )
        for deadline, row in db.deadlines.items():
            self._one(row, told[str(deadline)], db, wrong)

    def _one(self, row: DeadlineRow, told: int, db: SimDatabase, wrong: Wrong) -> None:
        name = f"{row.id} ({row.since})"
        swept = self.breached[row.id]
        if told != swept:
            wrong(f"DeadlineOnce: {name} has {told} callbacks of {swept} breaches")
        if swept and row.state != "breached":
            wrong(f"DeadlineOnce: {name} was breached but is {row.state}")
        verdict = self.closed.get(row.id)
        if verdict and row.state != verdict:
            wrong(f"DeadlineOnce: {name} was {verdict} but is {row.state}")
        if row.state == "breached" and not swept:
            wrong(f"DeadlineOnce: {name} is breached, but no sweep did it")
        if row.state == "armed" and row.due_at is not None and row.due_at < db.clock() - OVERDUE:
            wrong(f"DeadlineOnce: {name} was due at {row.due_at:%H:%M:%S} but is still armed")
        if row.of_job and row.state in ("armed", "waiting"):
            done = db.done.get(row.id)
            if done and (row.state == "waiting" or done.state == "completed"):
                wrong(f"DeadlineOnce: {name} is {row.state}, but its job is {done.state}")
        if row.of_job and row.state == "met" and row.job_state not in MEETS:
            wrong(f"DeadlineOnce: {name} was met by a job that is {row.job_state}")


PAGE = "page"
"""The callback's task in the simulated application."""
MEETS = ("completed", "discarded", "quarantined")
